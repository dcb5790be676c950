package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

const attachedA = "host [up1] pods [dra-a-0[net1]] leases [a-0/net1]"

func TestAttachAndStop(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.expect(attachedA, "claim-a")
	f.must(f.attach("a-0", record)) // the same sandbox twice is one attachment
	<-f.boxes.stopSandbox("a-0")
	f.expect(clean)
	<-f.boxes.stopSandbox("a-0") // Remove after Stop
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
}

func TestFailureIsTheAnswerAndLeavesNothing(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	err := f.attach("a-0", record)
	if err == nil || !strings.Contains(err.Error(), `step "tune" (tuning) of topology t`) {
		t.Errorf("error is %v", err)
	}
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.state("a-0"); return !known })
	f.expect(clean)
	f.node.Fail("tuning ADD", nil)
	f.must(f.attach("a-1", record)) // kubelet's next sandbox
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
}

// slow starts a chain that waits in its second step, and returns when RunPodSandbox has given up waiting.
func (f *fixture) slow(record claims.Record) (release func()) {
	f.Helper()
	release = f.node.Hold("tuning ADD")
	f.Cleanup(release)
	answer := make(chan error, 1)
	go func() { answer <- f.attach("a-0", record) }()
	f.eventually("the second step runs",
		func() bool { return strings.Contains(strings.Join(f.node.Calls(), ","), "tuning ADD") })
	f.step(attachBudget)
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
		t.Errorf("a container of the sandbox gets %v", err)
	}
	release()
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
	if _, _, err := f.nri.CreateContainer(context.Background(), sandbox, &api.Container{Name: "c"}); err != nil {
		t.Errorf("a container of the ready sandbox gets %v", err)
	}
}

func TestSlowChainThatFailsIsTriedAgain(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	release()
	f.eventually("the failure is told", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.failed) == 1 })
	if !strings.HasPrefix(f.failed[0], "a 10s ") || !strings.Contains(f.failed[0], "no such knob") {
		t.Errorf("told is %q", f.failed[0])
	}
	f.expect("host [up0 up1] pods [] leases []")
	f.node.Fail("tuning ADD", nil)
	f.step(attachRetry)
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
}

// A plugin that notes which namespace has a device, and is not told to let go of it, does not refuse the next attempt:
// nothing has the path of an attempt that was undone.
func TestEveryAttemptHasItsOwnPath(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	release := f.slow(record)
	paths := []string{f.boxes.find("a-0").state().Pin}
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	release()
	f.eventually("the failure is told", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.failed) == 1 })
	f.node.Fail("tuning ADD", nil)
	f.step(attachRetry)
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	paths = append(paths, f.boxes.find("a-0").state().Pin)
	f.crash()
	f.clock.Step(time.Second)
	f.start("boot-2") // undoes what it finds
	f.eventually("nothing is left", func() bool { return f.boxes.find("a-0") == nil })
	f.boxes.expectUnsynced(map[string]bool{"a-0": true})
	f.must(f.boxes.attachAfterResync("a-0", podNamed("a-0"), f.runs("a-0"), []claims.Record{record}))
	f.eventually("the sandbox is ready again", func() bool { return f.ready("a-0") })
	paths = append(paths, f.boxes.find("a-0").state().Pin)
	for i, path := range paths {
		if !strings.HasPrefix(path, "/run/netns/dra-a-0.") || slices.Contains(paths[:i], path) {
			t.Errorf("the paths of the attempts are %q", paths)
		}
		if used := f.node.Exists(path); used != (i == 2) {
			t.Errorf("there is a pin at %s: %v", path, used)
		}
	}
}

// An older sandbox of which the stop event was lost, and whose chain waits for its turn, does not undo the newer one of
// its pod.
func TestOlderSandboxLeavesTheNewerAlone(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for range maxChains {
		f.boxes.chains <- struct{}{} // other chains, which are slow
	}
	for _, id := range []string{"a-0", "a-1"} {
		answer := make(chan error, 1)
		go func() { answer <- f.attach(id, record) }()
		f.step(attachBudget)
		f.must(<-answer)
	}
	for range maxChains {
		<-f.boxes.chains
	}
	f.eventually("the newer sandbox is ready, and the older one undone", func() bool {
		return f.ready("a-1") &&
			f.boxes.find("a-0") == nil
	})
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
}

// While chains are late the runtime is not kept waiting for more, but chains that wait for their next try don't count.
func TestNoWaitWhileChainsAreLate(t *testing.T) {
	f := newFixture(t)
	for i, running := range []bool{true, false, true} {
		box := newSandbox(strings.Repeat("x", i+1), podNamed("x"), f.boxes.newAttachment("x", podNamed("x"), nil))
		box.background, box.running = true, running
		f.boxes.byID[box.id] = box
		want := attachBudget
		if i == 2 {
			want = 0
		}
		if got := f.boxes.budget(context.Background()); got != want {
			t.Errorf("budget with %d sandboxes is %s, want %s", i+1, got, want)
		}
	}
	clear(f.boxes.byID)
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if got := f.boxes.budget(soon); got > 600*time.Millisecond {
		t.Errorf("budget of a runtime that waits a second is %s", got)
	}
}

func TestStopDuringAttach(t *testing.T) {
	f := newFixture(t)
	f.slow(f.prepared("claim-a", "a", "up0"))
	<-f.boxes.stopSandbox("a-0")
	f.eventually("everything is undone", func() bool { known, _, _ := f.boxes.state("a-0"); return !known })
	f.expect(clean)
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

func TestSecondPodOfAnExclusiveClaimIsRefused(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	if err := f.attach("b-0", record); err == nil || !strings.Contains(err.Error(), "pod ns/a holds") {
		t.Errorf("error is %v", err)
	}
	f.expect(attachedA, "claim-a")
}

// The runtime lost the old sandbox's stop event; the new one of the same pod must still work.
func TestNewSandboxOfThePodReplacesTheOld(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.must(f.attach("a-1", record))
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
	<-f.boxes.stopSandbox("a-0") // late
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
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
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error is %v", err)
	}
	if _, known := f.claims.Get("claim-a"); !known {
		t.Error("the claim of a device that is not home is forgotten")
	}
	f.node.Fail("host-device DEL", nil)
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

// What was ready survives the driver; its gate is open again even if somebody removed it.
func TestRestartKeepsWhatIsReady(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.start("boot-1")
	f.expect(attachedA, "claim-a")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

func TestRebootUndoesEverything(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.node.Reboot()
	f.start("boot-2")
	f.eventually("leases are released", func() bool { known, _, _ := f.boxes.state("a-0"); return !known })
	f.expect("host [up1] pods [] leases []")
}

// A driver that dies in the middle of a chain leaves a record by which the next one undoes it; the sandbox, still
// there, is then attached anew.
func TestCrashDuringAttach(t *testing.T) {
	f := newFixture(t)
	f.slow(f.prepared("claim-a", "a", "up0"))
	// The chain never ends: what is on disk now is what a killed process leaves.
	runner := executor.New(f.boxes.executor.Options)
	left, _, err := f.chains.Load(runner)
	f.must(err)
	if len(left) != 1 || left["a-0"].Phase != executor.PhaseAttaching {
		t.Fatalf("records %v", left)
	}
	next := newSandboxes(attachConfig{Work: f.boxes.work, Executor: runner, Claims: f.claims, Gate: f.gate,
		Clock: f.clock, Observer: f, Metrics: newAttachMetrics(prometheus.NewRegistry()), BootID: "boot-1",
		PinDir: f.pinDir})
	f.must(next.recover(left))
	f.eventually("what was begun is undone", func() bool { known, _, _ := next.state("a-0"); return !known })
	f.expect(clean)
}

// A device that is not home keeps its claim, also after a restart.
func TestRestartRemembersWhatIsNotHome(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].Device.PCIAddress = "0000:01:00.0" // hardware, which always comes back
	f.must(f.attach("a-0", record))
	f.node.Lose()
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "no link up0") {
		t.Fatalf("error is %v", err)
	}
	f.crash()
	f.start("boot-1")
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "no link up0") {
		t.Fatalf("error after a restart is %v", err)
	}
	f.node.AddHostLink("up0")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	f.expect(clean)
}

// The driver died after it wrote Ready and before it opened the gate; kubelet will not ask again.
func TestGateIsSetRightAtStart(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(f.gate.close("claim-a"))
	f.must(f.gate.open(cnichain.Claim{UID: "claim-of-old"}, nil, nil))
	f.crash()
	f.start("boot-1")
	f.expect(attachedA, "claim-a")
}

// While a claim is being released no sandbox can begin with it.
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
		t.Errorf("error is %v", err)
	}
	release()
	f.must(<-ended)
	if err := f.attach("a-2", record); err == nil || !strings.Contains(err.Error(), "is being released") {
		t.Errorf("error after the release is %v", err)
	}
	f.expect(clean)
}

// However an attach and a stop meet, no gate is open when nothing is attached.
func TestAttachAndStopRace(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for i := range 30 {
		id := "a-" + strings.Repeat("x", i)
		go func() { _ = f.attach(id, record) }()
		f.eventually("the sandbox is known", func() bool { known, _, _ := f.boxes.state(id); return known })
		<-f.boxes.stopSandbox(id)
		f.eventually("the sandbox is gone", func() bool { known, _, _ := f.boxes.state(id); return !known })
		f.expect(clean)
	}
}

// Two sandboxes of one pod were missed: one is attached, and the other when the first has ended.
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
	<-f.boxes.stopSandbox(first)
	f.eventually("the other is attached", func() bool { f.clock.Step(attachRetry); return f.ready(second) })
	f.expect("host [up1] pods [dra-"+second+"[net1]] leases ["+second+"/net1]", "claim-a")
}

// A later pod of a shared claim must not slip through the gate that the first has opened.
func TestContainerWithAForeignGateIsRefused(t *testing.T) {
	f := newFixture(t)
	sandbox := &api.PodSandbox{Id: "z-0", Uid: "z", Name: "z", Namespace: "other"}
	container := &api.Container{Name: "c", CDIDevices: []*api.CDIDevice{{Name: f.gate.device("claim-a")}}}
	if _, _, err := f.nri.CreateContainer(context.Background(), sandbox, container); err == nil ||
		!strings.Contains(err.Error(), "nothing is attached") {
		t.Errorf("error is %v", err)
	}
}

func TestPodsThatStartedWhileTheDriverWasAway(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.prepared("claim-b", "b", "up1")
	for _, id := range []string{"a-0", "b-0", "c-0"} {
		f.runs(id)
	}
	f.connect(&api.Container{PodSandboxId: "b-0", State: api.ContainerState_CONTAINER_RUNNING,
		CDIDevices: []*api.CDIDevice{{Name: f.gate.device("claim-b")}}})
	f.eventually("the pod without containers is attached", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
}

func TestPodsThatAreNotOurs(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	for _, pod := range []*api.PodSandbox{
		{Id: "x-0", Uid: "x", Name: "x", Namespace: "ns"},
		{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns", Annotations: map[string]string{configSource: "file"}},
	} {
		if err := f.nri.RunPodSandbox(context.Background(), pod); err != nil {
			t.Errorf("pod %s gets %v", pod.GetName(), err)
		}
	}
	host := &api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"}
	if err := f.nri.RunPodSandbox(context.Background(), host); err == nil ||
		!strings.Contains(err.Error(), "host's network") {
		t.Errorf("a pod with a claim on the host's network gets %v", err)
	}
	if calls := f.node.Calls(); len(calls) > 0 {
		t.Errorf("calls are %v", calls)
	}
}

// Containers find the name of their interface in a file that is complete before they are created; those of claims that
// several pods use don't, as each pod has its own.
func TestContainersAreToldTheirInterfaces(t *testing.T) {
	for _, shareable := range []bool{false, true} {
		f := newFixture(t)
		record := f.prepared("claim-a", "a", "up0")
		record.Shareable = shareable
		f.must(f.attach("a-0", record))
		if len(f.described) != 1 {
			t.Fatalf("described are %+v", f.described)
		}
		metadata := f.described[0].Metadata
		if name := metadata.Attributes["dra.networking/ifName"].StringValue; name == nil || *name != "up0" {
			t.Errorf("attributes are %v", metadata.Attributes)
		}
		if network := metadata.NetworkData; shareable != (network == nil) || network != nil &&
			network.InterfaceName != "net1" {
			t.Errorf("shareable %t: network data are %+v", shareable, network)
		}
	}
}
