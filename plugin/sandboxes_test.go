package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

func TestAttachAndStop(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.expect(attachedA, "claim-a")
	f.must(f.attach("a-0", record)) // attaching the same sandbox twice creates only one attachment
	<-f.boxes.StopSandbox("a-0")
	f.expect(clean)
	<-f.boxes.StopSandbox("a-0") // Remove after Stop
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
}

// slow starts a chain that blocks in its second step, and returns once RunPodSandbox has stopped waiting.
func (f *fixture) slow(record claims.Record) (release func()) {
	f.Helper()
	release = f.node.Hold("tuning ADD")
	f.Cleanup(release)
	answer := make(chan error, 1)
	go func() { answer <- f.attach("a-0", record) }()
	f.eventually("the second step runs",
		func() bool { return strings.Contains(strings.Join(f.node.Calls(), ","), "tuning ADD") })
	f.step(attach.Budget)
	f.must(<-answer)
	return release
}

func TestSlowChainHoldsContainers(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	f.expect(attachedA) // no gate is open
	sandbox := &api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"}
	if _, _, err := f.nri.CreateContainer(context.Background(), sandbox, &api.Container{Name: "c"}); err == nil ||
		!strings.Contains(err.Error(), "being attached") {
		t.Errorf("error for a container of the sandbox = %v, want \"being attached\"", err)
	}
	release()
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
	if _, _, err := f.nri.CreateContainer(context.Background(), sandbox, &api.Container{Name: "c"}); err != nil {
		t.Errorf("cannot create a container in the ready sandbox: %v", err)
	}
}

func TestUnprepareDuringAttach(t *testing.T) {
	f := newFixture(t)
	f.slow(f.prepared("claim-a", "a", "up0"))
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
	if _, known := f.claims.Get("claim-a"); known {
		t.Error("the claim is still recorded")
	}
}

func TestReleasingOneClaimLeavesTheOther(t *testing.T) {
	f := newFixture(t)
	first, second := f.prepared("claim-a", "a", "up0"), f.prepared("claim-b", "a", "up1")
	f.must(f.attach("a-0", first, second))
	f.expect("host [] pods [dra-a-0[net1 net2]] leases [a-0/net1 a-0/net2]", "claim-a", "claim-b")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect("host [up0] pods [dra-a-0[net2]] leases [a-0/net2]", "claim-b")
	f.must(f.dra.unprepare(context.Background(), "claim-b"))
	f.expect(clean)
}

func TestDetachIsTriedAgain(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.node.Fail("host-device DEL", errors.New("busy"))
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "busy") {
		t.Errorf("error = %v, want \"busy\"", err)
	}
	if _, known := f.claims.Get("claim-a"); !known {
		t.Error("the claim of a device that is not on the host has no record")
	}
	f.node.Fail("host-device DEL", nil)
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

// A ready sandbox survives a driver restart, and its gate is opened again even if the gate's file was removed.
func TestRestartKeepsWhatIsReady(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.start("boot-1")
	f.expect(attachedA, "claim-a")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

// A claim keeps holding a device that is not back on the host, even after a restart.
func TestRestartRemembersWhatIsNotHome(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].Device.PCIAddress = "0000:01:00.0" // hardware, which always returns to the host
	f.must(f.attach("a-0", record))
	f.node.Lose()
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "no link up0") {
		t.Fatalf("error = %v, want \"no link up0\"", err)
	}
	f.crash()
	f.start("boot-1")
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "no link up0") {
		t.Fatalf("error after a restart = %v, want \"no link up0\"", err)
	}
	f.node.AddHostLink("up0")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

// While a claim is being released, no sandbox that uses it can start.
func TestReleasedClaimIsNotAttachedAgain(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	release := f.node.Hold("host-device DEL")
	t.Cleanup(release)
	ended := make(chan error, 1)
	go func() { ended <- f.dra.unprepare(context.Background(), "claim-a") }()
	f.eventually("DEL runs",
		func() bool { return strings.Contains(strings.Join(f.node.Calls(), ","), "host-device DEL") })
	if err := f.attach("a-1", record); err == nil || !strings.Contains(err.Error(), "is being released") {
		t.Errorf("error = %v, want \"is being released\"", err)
	}
	release()
	f.must(<-ended)
	if err := f.attach("a-2", record); err == nil || !strings.Contains(err.Error(), "is being released") {
		t.Errorf("error after the release = %v, want \"is being released\"", err)
	}
	f.expect(clean)
}

// If two sandboxes of the same pod were missed, one is attached immediately, and the other is attached once the first
// no longer exists.
func TestMissedSandboxesOfOnePodDoNotUndoEachOther(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.runs("a-0")
	f.runs("a-1")
	f.connect()
	f.eventually("one is attached", func() bool { return f.ready("a-0") != f.ready("a-1") })
	first, second := "a-0", "a-1"
	if f.ready(second) {
		first, second = second, first
	}
	<-f.boxes.StopSandbox(first)
	f.eventually("the other is attached", func() bool { f.clock.Step(attach.Retry); return f.ready(second) })
	f.expect("host [up1] pods [dra-"+second+"[net1]] leases ["+second+"/net1]", "claim-a")
}

// A pod that uses a shared claim later must not pass the gate that was opened for the first pod.
func TestContainerWithAForeignGateIsRefused(t *testing.T) {
	f := newFixture(t)
	sandbox := &api.PodSandbox{Id: "z-0", Uid: "z", Name: "z", Namespace: "other"}
	if _, _, err := f.nri.CreateContainer(context.Background(), sandbox, f.container("z-0", "claim-a")); err == nil ||
		!strings.Contains(err.Error(), "which is not prepared for it") {
		t.Errorf("error = %v, want \"which is not prepared for it\"", err)
	}
}

func TestPodsThatStartedWhileTheDriverWasAway(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.prepared("claim-b", "b", "up1")
	for _, id := range []string{"a-0", "b-0", "c-0"} {
		f.runs(id)
	}
	f.connect(f.container("b-0", "claim-b"))
	f.eventually("the pod without containers is attached", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
}

func TestPodsThatAreNotOurs(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.addPod(podObject("x"))
	for _, pod := range []*api.PodSandbox{
		{Id: "x-0", Uid: "x", Name: "x", Namespace: "ns"},
		{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns", Annotations: map[string]string{configSource: "file"}},
	} {
		if err := f.nri.RunPodSandbox(context.Background(), pod); err != nil {
			t.Errorf("cannot run pod %s: %v", pod.GetName(), err)
		}
	}
	host := &api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns",
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}}}}
	if err := f.nri.RunPodSandbox(context.Background(), host); err == nil ||
		!strings.Contains(err.Error(), "host network") {
		t.Errorf("error for a pod with a claim on the host's network = %v", err)
	}
	if calls := f.node.Calls(); len(calls) > 0 {
		t.Errorf("calls = %v, want none", calls)
	}
}

// Containers can read the name of their interface from a file that is complete before the containers are created. A
// claim that is used by several pods has no such file, since the name differs between pods.
func TestContainersAreToldTheirInterfaces(t *testing.T) {
	for _, shareable := range []bool{false, true} {
		f := newFixture(t)
		record := f.prepared("claim-a", "a", "up0")
		record.Shareable = shareable
		f.must(f.attach("a-0", record))
		if len(f.described) != 1 {
			t.Fatalf("described devices = %+v, want one", f.described)
		}
		metadata := f.described[0].Metadata
		if name := metadata.Attributes["dra.networking/ifName"].StringValue; name == nil || *name != "up0" {
			t.Errorf("attributes = %v, want ifName up0", metadata.Attributes)
		}
		if network := metadata.NetworkData; shareable != (network == nil) || network != nil &&
			network.InterfaceName != "net1" {
			t.Errorf("shareable: %t, wrong network data: %+v", shareable, network)
		}
	}
}
