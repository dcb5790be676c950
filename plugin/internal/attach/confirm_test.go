package attach

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

func TestGateNamesTheNamespace(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	if got := f.admits("claim-a"); got != "dra-a-0" {
		t.Errorf("the gate admits %q, want dra-a-0", got)
	}
}

// The gate of a pod's older sandbox is closed before RunPodSandbox returns for the newer sandbox, even if the newer
// sandbox's chain has to wait.
func TestGateOfAnOlderSandboxIsClosedAtOnce(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	for range maxChains {
		f.boxes.chains <- struct{}{}
	}
	release := f.node.Hold("host-device DEL")
	defer release()
	answer := make(chan error, 1)
	go func() { answer <- f.attach("a-1", record) }()
	f.eventually("the new sandbox is known", func() bool { known, _, _ := f.boxes.State("a-1"); return known })
	f.eventually("the gate is closed", func() bool { return f.admits("claim-a") == "" })
	f.step(Budget)
	f.must(<-answer)
	if _, ready, _ := f.boxes.State("a-0"); ready {
		t.Error("containers can start in the older sandbox")
	}
	release()
	for range maxChains {
		<-f.boxes.chains
	}
	f.eventually("the new sandbox is attached", func() bool { return f.admits("claim-a") == "dra-a-1" })
}

// A topology with a hanging plugin does not delay the chains of other topologies.
func TestHangingChainsOfOneTopology(t *testing.T) {
	f := newFixture(t)
	release := f.node.Hold("tuning ADD")
	defer release()
	answers := make(chan error, 2*maxChains)
	for i := range 2 * maxChains {
		pod := string(rune('A' + i))
		record := f.prepared("claim-"+pod, pod, "up0")
		record.Plans[0].Topology = "hangs"
		record.Plans[0].Steps = record.Plans[0].Steps[1:] // without the device step
		record.Plans[0].Steps[0].DependsOn, record.Devices = nil, nil
		f.must(f.claims.Release(record.Claim.UID))
		f.must(f.claims.Hold(record, asItIs))
		go func() { answers <- f.attach(pod+"-0", record) }()
		f.eventually("the sandbox is known", func() bool { known, _, _ := f.boxes.State(pod + "-0"); return known })
	}
	record := f.prepared("claim-a", "a", "up1")
	record.Plans[0].Steps = record.Plans[0].Steps[:1]
	f.must(f.claims.Release(record.Claim.UID))
	f.must(f.claims.Hold(record, asItIs))
	ended := make(chan error, 1)
	go func() { ended <- f.attach("a-0", record) }()
	f.eventually("the healthy pod is attached", func() bool { return f.admits("claim-a") == "dra-a-0" })
	f.clock.Step(Budget)
	f.must(<-ended)
}

func TestLostJournalAndPodsThatEnd(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.must(os.Remove(filepath.Join(f.dir, "journal.db")))
	f.start("boot-1")
	sweeper := f.sweeper()
	sweeper.IsNamed = func(string) bool { return false }
	f.must(sweeper.Sweep())
	f.expect(attachedA, "claim-a") // a single check proves nothing
	f.must(sweeper.Sweep())
	f.expect("host [up1] pods [] leases [a-0/net1]")
}

// If the driver's files are removed, they are soon restored.
func TestGatesThatSomebodyRemovedComeBack(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(f.gate.close("claim-a"))
	f.must(f.gate.open(&claims.Record{Claim: cnichain.Claim{UID: "claim-of-old"}}, nil, nil))
	f.must(f.sweeper().Sweep())
	f.expect(attachedA, "claim-a")
}

// Only the pin keeps the namespace accessible to the driver. If the pin is removed, it is restored, provided that the
// namespace is provably the same.
func TestPinThatSomebodyRemovedComesBack(t *testing.T) {
	f := newFixture(t)
	f.node.KeepPods()
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	pin := f.boxes.find("a-0").view().pin
	f.node.RemovePin(pin)
	if f.node.Exists(pin) {
		t.Fatal("the pin was restored for another namespace")
	}
	f.must(f.sweeper().Sweep())
	if !f.node.Exists(pin) {
		t.Error("the pin was not restored")
	}
	f.expect(attachedA, "claim-a")
}

// If both the pin and an interface are missing, the driver cannot determine whether the namespace is the attached one.
// The pod may be running, so it keeps its interfaces. In contrast, a different identity proves that the namespace is
// not the attached one.
func TestPodsWithoutTheirPinKeepWhatTheyHave(t *testing.T) {
	for name, again := range map[string]func(*fixture){
		"reconnect": func(f *fixture) { f.must(f.boxes.Disconnect()); f.must(f.boxes.Confirm(f.runtime)) },
		"restart":   func(f *fixture) { f.crash(); f.start("boot-1") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.node.KeepPods()
			f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0"), f.prepared("claim-b", "a", "up1")))
			pin := f.boxes.find("a-0").view().pin
			f.node.RemovePin(pin)
			f.node.DeletePodLink(f.runtime["a-0"], "net1")
			again(f)
			f.boxes.FinishWork()
			if !f.ready("a-0") || slices.ContainsFunc(f.node.Calls(), isDel) {
				t.Errorf("the pod is ready: %t, calls: %q", f.ready("a-0"), f.node.Calls())
			}
			f.expect("host [] pods [cni-a-0[net2]] leases [a-0/net1 a-0/net2]") // no gate is open
			if len(f.failed) != 1 || !strings.Contains(f.failed[0], "cannot compare the network namespace") {
				t.Errorf("the pod got failures %q", f.failed)
			}
		})
	}
	f := newFixture(t)
	f.node.KeepPods()
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	pin := f.boxes.find("a-0").view().pin
	f.node.RemovePin(pin)
	f.ends("a-0")
	f.node.AddNamespace("/var/run/netns/cni-other")
	f.must(f.boxes.Disconnect())
	f.must(f.boxes.Confirm(map[string]string{"a-0": "/var/run/netns/cni-other"}))
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
}

// Records from earlier drivers do not contain the identity of the namespace, so the driver can never prove that a
// namespace is not the attached one.
func TestPodsOfEarlierDriversWithoutTheirPin(t *testing.T) {
	f := newFixture(t)
	f.node.KeepPods()
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	box := f.boxes.find("a-0")
	box.set(func(state *boxState) { state.netNSID = "" })
	pin := box.view().pin
	f.node.RemovePin(pin)
	f.node.DeletePodLink(f.runtime["a-0"], "net1")
	f.must(f.boxes.Disconnect())
	f.must(f.boxes.Confirm(f.runtime))
	f.boxes.FinishWork()
	if !f.ready("a-0") || slices.ContainsFunc(f.node.Calls(), isDel) {
		t.Errorf("the pod is ready: %t, calls: %q", f.ready("a-0"), f.node.Calls())
	}
}

// If a namespace cannot be inspected when the connection starts, the comparison is repeated in each sweep.
func TestSandboxesAreComparedAgain(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.must(f.boxes.Disconnect())
	f.node.Fail("NamespaceID", errors.New("too many open files"))
	f.must(f.boxes.Confirm(f.runtime))
	f.must(f.sweeper().Sweep())
	f.expect(attachedA) // no gate is open
	if len(f.failed) != 1 {
		t.Errorf("the pod got failures %q, want one", f.failed)
	}
	// The live sandbox has not been compared yet, but that does not make an unknown sandbox of the same pod the live
	// one.
	f.boxes.ExpectUnsynced(map[string]bool{"a-9": true})
	if err := f.boxes.AttachAfterResync("a-9", podNamed("a-9"), "/var/run/netns/cni-a-9",
		[]claims.Record{record}); err == nil || !strings.Contains(err.Error(), "has the sandbox a-0") {
		t.Errorf("error = %v, want \"has the sandbox a-0\"", err)
	}
	f.node.Fail("NamespaceID", nil)
	f.must(f.sweeper().Sweep())
	f.expect(attachedA, "claim-a")
}

// The result of a comparison is valid only for the connection that it was made on.
func TestConfirmationsEndWithTheirConnection(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	earlier, box := f.boxes.connection, f.boxes.find("a-0")
	f.must(f.boxes.Disconnect())
	f.must(f.boxes.Confirm(nil))
	earlier.listed["a-0"] = f.runtime["a-0"]
	if same, known := f.boxes.confirmIn(earlier, box); !same || !known { // by a sweep that started earlier
		t.Error("an earlier sweep did not compare the sandbox")
	}
	f.must(f.sweeper().Sweep())
	f.expect(attachedA)
}

// A sandbox that the runtime listed on an earlier connection is not attached on the next connection, because it may no
// longer exist by that time.
func TestListsEndWithTheirConnection(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.boxes.ExpectUnsynced(map[string]bool{"a-0": true})
	f.must(f.boxes.Disconnect())
	f.must(f.boxes.Confirm(nil))
	if f.boxes.IsUnsynced("a-0") {
		t.Error("the sandbox is still waiting to be attached")
	}
	if err := f.boxes.AttachAfterResync("a-0", podNamed("a-0"), f.runs("a-0"), []claims.Record{record}); err == nil {
		t.Error("the sandbox was attached, want an error")
	}
}

// As long as a gate cannot be closed, nothing is detached, and an event on the pod reports the reason.
func TestGatesThatCannotBeClosedAreTold(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	path := f.gate.path("claim-a")
	f.must(errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "not-empty"), 0o755)))
	done := f.boxes.StopSandbox("a-0")
	f.eventually("the pod is told", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.stuck) == 1 && strings.Contains(f.stuck[0], "cannot close the gate of claim")
	})
	f.must(os.RemoveAll(path))
	f.step(detachRetry)
	<-done
	f.expect(clean)
}

func isDel(call string) bool { return strings.Contains(call, " DEL ") }

func TestDevicesThatMayBeInPodsAreNotGone(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	if gone := f.claims.All().GoneDevices(map[string]bool{"up0": true}, f.boxes.MayBeInPod); gone["up0"] {
		t.Error("a device on the host is reported as gone")
	}
	if gone := f.claims.All().GoneDevices(nil, f.boxes.MayBeInPod); !gone["up0"] {
		t.Error("a device that exists nowhere is reported as present")
	}
	f.must(f.attach("a-0", record))
	if gone := f.claims.All().GoneDevices(nil, f.boxes.MayBeInPod); gone["up0"] {
		t.Error("a device in a pod is reported as gone")
	}
}

// On shutdown, the driver does not wait for chains that have not started.
func TestStopEndsChainsThatWait(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for range maxChains {
		f.boxes.chains <- struct{}{}
	}
	answer := make(chan error, 1)
	go func() { answer <- f.attach("a-0", record) }()
	f.step(Budget)
	f.must(<-answer)
	f.stopWork()
	f.boxes.FinishWork() // would hang otherwise
	f.expect("host [up0 up1] pods [] leases []")
}
