package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
)

// withoutJournal returns a driver that lost its journal while a pod was using a claim. Both the pod and the claim exist
// in the cluster.
func withoutJournal(t *testing.T) (f *fixture, prepared *int) {
	f = newFixture(t)
	claim := allocatedClaim("claim-a", "up0", "a")
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.must(os.Remove(filepath.Join(f.dir, "journal.db")))
	f.must(os.WriteFile(filepath.Join(f.dir, "journal.db.unreadable-1"), nil, 0o600))
	return f, f.recovering(claim)
}

// recovering sets up the input for [fixture.recover] and returns the counter of claims that are prepared again.
func (f *fixture) recovering(claims ...*resourceapi.ResourceClaim) *int {
	f.client = fake.NewClientset()
	for _, claim := range claims {
		f.must(f.client.Tracker().Add(claim))
	}
	return new(int)
}

// recover searches for lost claims, which the driver does periodically.
func (f *fixture) recover(count *int) {
	f.Helper()
	d := f.driver()
	d.client = f.client
	f.must(f.nri.Cluster.pods.GetIndexer().Add(podObject("a", "claim-a")))
	d.again = func(ctx context.Context, wanted []*drapb.Claim) error {
		*count += len(wanted)
		results, err := f.dra.PrepareResourceClaims(ctx,
			[]*resourceapi.ResourceClaim{allocatedClaim("claim-a", "up0", "a")})
		f.must(err)
		return errors.Join(results["claim-a"].Err, f.failAgain)
	}
	d.recoverLost(context.Background())
}

// If a pod's sandbox was replaced after the journal was lost, the pod is attached again even though the kubelet does
// not call Prepare again.
func TestLostClaimsArePreparedAgain(t *testing.T) {
	f, count := withoutJournal(t)
	f.ends("a-0")
	f.runs("a-1")
	f.start("boot-1")
	f.node.AddHostLink("up0") // when the namespace is destroyed, the kernel returns hardware to the host
	f.recover(count)
	f.eventually("the new sandbox is attached", func() bool { f.clock.Step(attach.Retry); return f.ready("a-1") })
	if *count != 1 {
		t.Errorf("%d claims were prepared again, want 1", *count)
	}
	f.recover(count)
	if *count != 1 {
		t.Errorf("%d claims were prepared again in total, want 1", *count)
	}
}

// A pod that still has its interfaces is not touched, and neither are pods with claims for other drivers.
func TestAttachedPodsOfALostJournalAreLeftAlone(t *testing.T) {
	f, count := withoutJournal(t)
	f.runs("z-0")
	f.start("boot-1")
	f.recover(count)
	if *count != 0 {
		t.Errorf("%d claims were prepared again, want 0", *count)
	}
	f.expect(attachedA, "claim-a")
	foreign := allocatedClaim("claim-a", "up0", "a")
	foreign.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	user := func(uid types.UID) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }
	if isForPod(foreign, user("a")) || !isForPod(allocatedClaim("c", "up0", "a"), user("a")) ||
		isForPod(allocatedClaim("c", "up0", "a"), user("b")) {
		t.Error("claims are matched to the wrong pod")
	}
	ofGroup := allocatedClaim("c", "up0", "a")
	ofGroup.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "g"}}
	member := user("b")
	member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("gang")}
	if !isForPod(ofGroup, member) || isForPod(ofGroup, user("b")) {
		t.Error("claims of PodGroups are matched to the wrong pod")
	}
}

// Claims that were prepared in an attempt that later failed are attached by the next attempt.
func TestLostClaimsThatWerePreparedByAnother(t *testing.T) {
	f, count := withoutJournal(t)
	f.ends("a-0")
	f.runs("a-1")
	f.start("boot-1")
	f.node.AddHostLink("up0")
	f.failAgain = errors.New("no space left on device")
	f.recover(count)
	f.recover(count)
	f.eventually("the new sandbox is attached", func() bool { f.clock.Step(attach.Retry); return f.ready("a-1") })
	if *count != 1 {
		t.Errorf("%d claims were prepared again, want 1", *count)
	}
}

// A claim whose devices another component attaches is not prepared repeatedly while the devices are in the pod.
func TestLostClaimsThatOthersAttach(t *testing.T) {
	f := newFixture(t)
	f.external()
	f.node.AddHostLink("up0")
	_, err := f.prepareNow(allocatedClaim("claim-a", "up0", "a"))
	f.must(err)
	f.runs("a-0")
	f.node.RemoveHostLink("up0")
	f.crash()
	f.must(os.Remove(filepath.Join(f.dir, "journal.db")))
	f.must(os.WriteFile(filepath.Join(f.dir, "journal.db.unreadable-1"), nil, 0o600))
	count := f.recovering(allocatedClaim("claim-a", "up0", "a"))
	f.start("boot-1")
	f.external()
	f.recover(count)
	if *count != 0 {
		t.Errorf("%d claims were prepared again, want 0", *count)
	}
}

// If a claim cannot be prepared again because it no longer exists in the API server, the files for other claims are
// still restored.
func TestMetadataOfEachClaimIsWrittenAgain(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.prepared("claim-b", "b", "up1")
	d := f.driver()
	var asked []string
	d.again = func(_ context.Context, wanted []*drapb.Claim) error {
		for _, claim := range wanted {
			asked = append(asked, claim.Name)
			if _, marked := d.dra.repairing.Load(claim.Uid); !marked {
				t.Errorf("claim %s is not marked as being repaired", claim.Name)
			}
			if claim.Name == "claim-a" {
				return errors.New("not found")
			}
		}
		return nil
	}
	if err := d.repairMetadata(t.Context()); err == nil || !strings.Contains(err.Error(), "claim ns/claim-a again") {
		t.Errorf("error = %v, want \"claim ns/claim-a again\"", err)
	}
	d.dra.repairing.Range(func(uid, _ any) bool {
		t.Errorf("claim %s is still marked as being repaired", uid)
		return true
	})
	if !slices.Equal(asked, []string{"claim-a", "claim-b"}) {
		t.Errorf("claims prepared again: %q, want claim-a and claim-b", asked)
	}
}
