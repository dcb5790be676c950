package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// usesClaims returns the names of the claims that the driver finds for a pod in the namespace ns.
func (f *fixture) usesClaims(pod string) ([]string, error) {
	records, err := f.nri.claimsOf(&api.PodSandbox{Id: pod + "-0", Uid: pod, Name: pod, Namespace: "ns"})
	var names []string
	for i := range records {
		names = append(names, records[i].Claim.Name)
	}
	return names, err
}

// Kubernetes allows a pod to name a claim that was generated for another pod, and the kubelet does not prepare such a
// claim again.
func TestGeneratedClaimOfAnotherPod(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("c", "up0", "a")
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	f.must(results["c"].Err)
	if record, _ := f.claims.Get("c"); record.Shareable {
		t.Error("the claim is shareable, but this test requires a generated claim")
	}
	if names, err := f.usesClaims("b"); err == nil {
		t.Errorf("got claims %v of a pod that the API server has not reported, want an error", names)
	}
	f.addPod(podObject("b", "c"))
	f.addPod(podObject("x"))
	if names, err := f.usesClaims("x"); len(names) > 0 || err != nil {
		t.Errorf("got claims %v of a pod without claims, error %v", names, err)
	}
	f.runs("b-0")
	f.must(f.nri.RunPodSandbox(context.Background(), f.sandbox("b-0")))
	if !f.ready("b-0") {
		t.Fatal("RunPodSandbox did not attach the claim")
	}
	_, _, err = f.nri.CreateContainer(context.Background(), f.sandbox("b-0"), &api.Container{Name: "sidecar",
		PodSandboxId: "b-0"})
	f.must(err)
	f.runs("a-0") // the device is exclusive, so the claim's own pod is rejected while the other pod is using it
	f.addPod(podObject("a", "c"))
	if err := f.nri.RunPodSandbox(context.Background(), f.sandbox("a-0")); err == nil ||
		!strings.Contains(err.Error(), "pod ns/b uses its exclusive device") {
		t.Errorf("error = %v, want \"pod ns/b uses its exclusive device\"", err)
	}
}

// While the API server is unavailable, the driver uses the names that were recorded when a claim was prepared, so a pod
// keeps all of its claims.
func TestClaimsOfAPodWhileTheAPIServerIsAway(t *testing.T) {
	f := newFixture(t)
	f.addPod(podObject("a", "c", "d"))
	f.addPod(podObject("b", "d"))
	for name, link := range map[string]string{"c": "up0", "d": "up1"} {
		pod := map[string]string{"c": "a", "d": "b"}[name]
		results, err := f.dra.PrepareResourceClaims(t.Context(),
			[]*resourceapi.ResourceClaim{allocatedClaim(name, link, pod)})
		f.must(err)
		f.must(results[types.UID(name)].Err)
	}
	f.crash()
	f.start("boot-1") // its pod cache is empty
	for pod, want := range map[string][]string{"a": {"c", "d"}, "b": {"d"}} {
		if names, err := f.usesClaims(pod); err != nil || !slices.Equal(names, want) {
			t.Errorf("claims of pod %s = %v, error %v, want %v", pod, names, err, want)
		}
	}
}

// The creation of a container that names a claim is the last opportunity to detect that its sandbox is not attached:
// the driver either attaches the claim or creates an event for the pod.
func TestMissedSandboxIsAttachedForItsContainer(t *testing.T) {
	f := newFixture(t)
	f.runs("a-0")
	f.addPod(podObject("a", "claim-a"))
	f.must(f.nri.RunPodSandbox(context.Background(), f.sandbox("a-0")))
	f.prepared("claim-a", "a", "up0")
	create := func() error {
		_, _, err := f.nri.CreateContainer(context.Background(), f.sandbox("a-0"), f.container("a-0", "claim-a"))
		return err
	}
	if err := create(); err == nil || !strings.Contains(err.Error(), "is being attached") {
		t.Errorf("error = %v, want \"is being attached\"", err)
	}
	f.eventually("the sandbox is attached", func() bool { return f.ready("a-0") })
	f.must(create())
}

func TestContainerWithoutAPreparedClaimHasAnEvent(t *testing.T) {
	f := newFixture(t)
	f.runs("a-0")
	f.addPod(podObject("a"))
	_, _, err := f.nri.CreateContainer(context.Background(), f.sandbox("a-0"), f.container("a-0", "gone"))
	if err == nil || !strings.Contains(err.Error(), "delete the pod") {
		t.Errorf("error = %v, want \"delete the pod\"", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) != 1 || !strings.Contains(f.failed[0], executor.Pod{Namespace: "ns", Name: "a"}.String()) {
		t.Errorf("events = %q, want one for pod ns/a", f.failed)
	}
}
