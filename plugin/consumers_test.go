package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// reserve replaces a claim's reservation and removes the claim's owner, as if the claim had been created by a user or
// for a PodGroup.
func reserve(claim *resourceapi.ResourceClaim, users ...resourceapi.ResourceClaimConsumerReference) {
	claim.OwnerReferences, claim.Annotations = nil, nil
	claim.Status.ReservedFor = users
}

func gangOf(name string) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: name,
		UID: "uid-of-group"}
}

// The consumers of a PodGroup's claim are the pods in the group that are known when the claim is prepared; pods that
// arrive later are matched by the group's name. The claim is in use as long as at least one of these pods exists.
func TestClaimOfAPodGroup(t *testing.T) {
	f := newFixture(t)
	member := func(name, group string, claims ...string) *corev1.Pod {
		pod := podObject(name, claims...)
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
		f.must(f.dra.Cluster.pods.GetStore().Add(pod))
		return pod
	}
	first := member("a", "gang", "other", "c")
	member("b", "gang")         // in the group, but without the claim
	member("z", "another", "c") // has a claim with the same name, but the claim is not reserved for this group
	claim := allocatedClaim("c", "up0", "a")
	reserve(claim, gangOf("gang"))
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	f.must(results["c"].Err)
	record, _ := f.claims.Get("c")
	if diff := cmp.Diff([]claims.Consumer{{PodUID: "a", Position: 1, Claims: []string{"other", "c"}}}, record.Consumers); diff != "" ||
		!record.Shareable {
		t.Errorf("shareable: %v, wrong consumers (-want +got):\n%s", record.Shareable, diff)
	}
	f.must(f.dra.Cluster.pods.GetStore().Delete(podObject("z")))
	later := member("later", "gang", "c")
	found, err := f.nri.claimsOf(&api.PodSandbox{Id: "later-0", Uid: "later", Name: "later", Namespace: "ns"})
	if err != nil || len(found) != 1 || found[0].Claim.UID != "c" {
		t.Errorf("got claims %v for a later pod, error %v", found, err)
	}
	first.DeletionTimestamp = &metav1.Time{}
	isLeaving := func() bool {
		return f.dra.rivalsOf(cnichain.Claim{Namespace: "ns", Name: "d"}).IsLeaving(&record)
	}
	if isLeaving() {
		t.Error("the claim of a group with another pod is treated as unused")
	}
	later.DeletionTimestamp = &metav1.Time{}
	if !isLeaving() {
		t.Error("the claim of a group whose last pod is being deleted is not treated as leaving")
	}
}

// A driver that composes devices can cause our claim to be prepared for a pod that does not list the claim but is in
// reservedFor.
func TestClaimThatThePodDoesNotList(t *testing.T) {
	f := newFixture(t)
	f.must(f.dra.Cluster.pods.GetStore().Add(podObject("a", "composed")))
	claim := allocatedClaim("c", "up0", "a")
	reserve(claim, claim.Status.ReservedFor...)
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	f.must(results["c"].Err)
	if ids := results["c"].Devices[0].CDIDeviceIDs; len(ids) != 1 || !strings.HasSuffix(ids[0], ".c") {
		t.Errorf("got CDI devices %q, want one that ends in .c", ids)
	}
	f.runs("a-0")
	f.must(f.nri.RunPodSandbox(context.Background(), f.sandbox("a-0")))
	f.eventually("the pod is attached", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "c")
}

// A claim is rejected if it has no consumers or a consumer of an unknown kind.
func TestClaimThatIsReservedForNoPod(t *testing.T) {
	for title, users := range map[string][]resourceapi.ResourceClaimConsumerReference{
		"none":           nil,
		"something else": {{APIGroup: "example.com", Resource: "machines", Name: "m", UID: "m"}},
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t)
			claim := allocatedClaim("c", "up0", "a")
			reserve(claim, users...)
			results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
			f.must(err)
			if err := results["c"].Err; err == nil || !strings.Contains(err.Error(),
				"cannot prepare claim ns/c: it is not reserved for a pod or PodGroup") {
				t.Errorf("error = %v, want an error about the missing reservation", err)
			}
			if _, held := f.claims.Get("c"); held {
				t.Error("the rejected claim holds devices")
			}
		})
	}
}
