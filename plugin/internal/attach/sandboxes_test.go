package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

const attachedA = "host [up1] pods [dra-a-0[net1]] leases [a-0/net1]"

func TestFailureIsTheAnswerAndLeavesNothing(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	err := f.attach("a-0", record)
	if err == nil || !strings.Contains(err.Error(), `step "tune" (tuning) of topology t`) {
		t.Errorf("error = %v, want the failed step", err)
	}
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	f.expect(clean)
	f.node.Fail("tuning ADD", nil)
	f.must(f.attach("a-1", record)) // the kubelet's next sandbox
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
}

// Between two sandboxes of a pod, the reason why the previous sandbox was not attached is kept until the next sandbox
// is created, the claim is released, or so much time has passed that the kubelet appears to have given up.
func TestEndedSandboxesAreKnown(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	ended := func() string {
		var texts []string
		for _, state := range f.boxes.States() {
			if state.State == nodestate.SandboxEnded {
				texts = append(texts, fmt.Sprintf("%s of %s with %v", state.ID, state.Pod, state.Claims))
				if !strings.Contains(state.Failure, "no such knob") ||
					!strings.Contains(state.FailureHint, "may lack a feature that tuning needs") {
					t.Errorf("sandbox %s has the wrong failure %q", state.ID, state.Failure)
				}
			}
		}
		return strings.Join(texts, ", ")
	}
	fail := func(id string) {
		t.Helper()
		f.node.Fail("tuning ADD", errors.New("no such knob: operation not supported"))
		if err := f.attach(id, record); err == nil {
			t.Error("attaching the sandbox succeeded, want an error")
		}
		f.eventually("it is known why", func() bool { return ended() == id+" of ns/a with [claim-a]" })
		f.node.Fail("tuning ADD", nil)
	}
	fail("a-0")
	fail("a-1")
	release := f.node.Hold("tuning ADD")
	attached := make(chan error, 1)
	go func() { attached <- f.attach("a-2", record) }()
	f.eventually("the next one is being attached", func() bool { known, _, _ := f.boxes.State("a-2"); return known })
	if states := f.boxes.States(); len(states) != 1 || states[0].State != nodestate.SandboxAttaching ||
		!strings.Contains(states[0].Failure, "no such knob") || states[0].FailureHint == "" {
		t.Errorf("states during the next attach = %+v, want the failure of the last sandbox", states)
	}
	release()
	f.must(<-attached)
	if states := f.boxes.States(); len(states) != 1 || states[0].Failure != "" {
		t.Errorf("states = %+v, want one ready sandbox without a failure", states)
	}
	f.boxes.noteEnded("a-1", executor.Pod{UID: f.boxes.find("a-2").pod.UID}, []claims.Record{record},
		errors.New("no such knob"))
	if got := ended(); got != "" {
		t.Errorf("an older sandbox is listed next to a ready one: %s", got)
	}
	<-f.boxes.StopSandbox("a-2")
	fail("a-3")
	f.clock.Step(endedFor)
	if got := ended(); got != "" {
		t.Errorf("ended sandboxes after the retention time: %s, want none", got)
	}
	fail("a-4")
	f.must(f.claims.Release("claim-a"))
	if got := ended(); got != "" {
		t.Errorf("ended sandboxes after the release: %s, want none", got)
	}
}

// A terminating pod waits for DEL to succeed. The sandbox's state shows since when and why, and the observer is called
// once for each reason.
func TestWhyAPodCannotBeDetached(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.node.Fail("tuning DEL", errors.New("busy"))
	f.clock.Step(time.Hour)
	began := f.clock.Now()
	done := f.boxes.StopSandbox("a-0")
	failed := func(want int, reason string) func() bool {
		return func() bool {
			states := f.boxes.States()
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.stuck) == want && len(states) == 1 && strings.Contains(states[0].DetachFailure, reason) &&
				strings.Contains(f.stuck[want-1], reason)
		}
	}
	f.eventually("it is told", failed(1, "busy"))
	if state := f.boxes.States()[0]; state.State != nodestate.SandboxDetaching || !state.Since.Equal(began) {
		t.Errorf("sandbox state is %s since %s, want detaching since %s", state.State, state.Since, began)
	}
	f.node.Fail("tuning DEL", errors.New("no plugin"))
	f.eventually("the other reason is told", func() bool {
		f.clock.Step(detachRetry) // shorter than the time after which the driver abandons the step
		return failed(2, "no plugin")()
	})
	f.node.Fail("tuning DEL", nil)
	f.eventually("it ends", func() bool {
		f.clock.Step(detachRetry)
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	if states := f.boxes.States(); len(states) > 0 {
		t.Errorf("states = %+v, want none", states)
	}
}

// If a gate cannot be updated, this is also reported as the reason why the pod cannot be detached.
func TestEndedSandboxesOfGatesAreKnown(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(os.RemoveAll(f.gate.dir))
	f.must(os.WriteFile(f.gate.dir, nil, 0o600))
	err := f.attach("a-0", record)
	states := f.boxes.States()
	if err == nil || len(states) != 1 || states[0].State != nodestate.SandboxEnded ||
		states[0].Failure != err.Error() {
		t.Errorf("states = %+v, want an ended sandbox with the error %v", states, err)
	}
}

func TestSlowChainThatFailsIsTriedAgain(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	release()
	f.eventually("the failure is told", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.failed) == 1 })
	if !strings.HasPrefix(f.failed[0], "a 10s ") || !strings.Contains(f.failed[0], "no such knob") {
		t.Errorf("wrong failure report: %q", f.failed[0])
	}
	f.expect("host [up0 up1] pods [] leases []")
	f.node.Fail("tuning ADD", nil)
	f.step(Retry)
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
}

// A plugin that records a device's namespace and is never called for DEL does not reject the next attempt, because no
// later attempt uses the same path as an attempt that was rolled back.
func TestEveryAttemptHasItsOwnPath(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	release := f.slow(record)
	paths := []string{f.boxes.find("a-0").view().pin}
	f.node.Fail("tuning ADD", errors.New("no such knob"))
	release()
	f.eventually("the failure is told", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.failed) == 1 })
	f.node.Fail("tuning ADD", nil)
	f.step(Retry)
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	paths = append(paths, f.boxes.find("a-0").view().pin)
	f.crash()
	f.clock.Step(time.Second)
	f.start("boot-2") // rolls back the earlier attachments
	f.eventually("nothing is left", func() bool { return f.boxes.find("a-0") == nil })
	f.boxes.ExpectUnsynced(map[string]bool{"a-0": true})
	f.must(f.boxes.AttachAfterResync("a-0", podNamed("a-0"), f.runs("a-0"), []claims.Record{record}))
	f.eventually("the sandbox is ready again", func() bool { return f.ready("a-0") })
	paths = append(paths, f.boxes.find("a-0").view().pin)
	for i, path := range paths {
		if !strings.HasPrefix(path, "/run/netns/dra-a-0.") || slices.Contains(paths[:i], path) {
			t.Errorf("wrong pin paths of the attempts: %q", paths)
		}
		if used := f.node.Exists(path); used != (i == 2) {
			t.Errorf("pin %s exists: %v", path, used)
		}
	}
}

// If the stop event for an older sandbox was lost and its chain is still waiting for its turn, the older sandbox does
// not detach the newer sandbox of the same pod.
func TestOlderSandboxLeavesTheNewerAlone(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for range maxChains {
		f.boxes.chains <- struct{}{} // slots taken by slow chains of other sandboxes
	}
	for _, id := range []string{"a-0", "a-1"} {
		answer := make(chan error, 1)
		go func() { answer <- f.attach(id, record) }()
		f.step(Budget)
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

// While chains are late, the runtime does not have to wait for further chains. A chain that is waiting for its next
// attempt is not considered late.
func TestNoWaitWhileChainsAreLate(t *testing.T) {
	f := newFixture(t)
	for i, running := range []bool{true, false, true} {
		box := newSandbox(strings.Repeat("x", i+1), podNamed("x"), f.boxes.newAttachment("x", podNamed("x"), nil))
		box.background, box.running = true, running
		f.boxes.byID[box.id] = box
		want := Budget
		if i == 2 {
			want = 0
		}
		if got := f.boxes.Budget(context.Background()); got != want {
			t.Errorf("budget with %d sandboxes = %s, want %s", i+1, got, want)
		}
	}
	clear(f.boxes.byID)
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if got := f.boxes.Budget(soon); got > 600*time.Millisecond {
		t.Errorf("budget = %s for a runtime that waits 1 s, want at most 600 ms", got)
	}
}

func TestStopDuringAttach(t *testing.T) {
	f := newFixture(t)
	f.slow(f.prepared("claim-a", "a", "up0"))
	<-f.boxes.StopSandbox("a-0")
	f.eventually("everything is undone", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	f.expect(clean)
}

func TestSecondPodOfAnExclusiveClaimIsRefused(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	if err := f.attach("b-0", record); err == nil || !strings.Contains(err.Error(), "pod ns/a uses its exclusive "+
		"device") {
		t.Errorf("error = %v, want \"pod ns/a uses its exclusive device\"", err)
	}
	f.expect(attachedA, "claim-a")
	if len(f.failed) != 1 || !strings.HasPrefix(f.failed[0], "b 0s cannot attach claim ") {
		t.Errorf("failures = %q, want one failure of pod b", f.failed)
	}
	states := f.boxes.States()
	if len(states) != 2 || states[0].State != nodestate.SandboxReady || states[1].State != nodestate.SandboxEnded ||
		states[1].Pod.Name != "b" {
		t.Errorf("states = %+v, want a ready and an ended sandbox", states)
	}
	f.must(f.sweeper().Sweep())
	if states := f.boxes.States(); len(states) != 2 {
		t.Errorf("states while the pod waits = %+v, want two sandboxes", states)
	}
	f.podsGone["b"] = true
	f.must(f.sweeper().Sweep())
	if states := f.boxes.States(); len(states) != 1 || states[0].State != nodestate.SandboxReady {
		t.Errorf("states after the pod was deleted = %+v, want one ready sandbox", states)
	}
}

// The runtime lost the stop event of the old sandbox; the new sandbox of the same pod must still work.
func TestNewSandboxOfThePodReplacesTheOld(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.must(f.attach("a-1", record))
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
	<-f.boxes.StopSandbox("a-0") // late
	f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
}

func TestRebootUndoesEverything(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.node.Reboot()
	f.start("boot-2")
	f.eventually("leases are released", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	f.expect("host [up1] pods [] leases []")
}

// If a driver is killed in the middle of a chain, it leaves a record that the next process uses to roll back the chain.
// The sandbox still exists, so it is then attached again.
func TestCrashDuringAttach(t *testing.T) {
	f := newFixture(t)
	f.slow(f.prepared("claim-a", "a", "up0"))
	// The chain never finishes, so the files on disk are in the state that a killed process leaves behind.
	runner := executor.New(f.boxes.Executor.Options)
	left, _, err := f.chains.Load(runner)
	f.must(err)
	if len(left) != 1 || left["a-0"].Phase != executor.PhaseAttaching {
		t.Fatalf("stored chains = %v, want a-0 in phase attaching", left)
	}
	next := New(f.config(f.boxes.Work, runner))
	f.must(next.Recover(left))
	f.eventually("the started steps are reverted", func() bool { known, _, _ := next.State("a-0"); return !known })
	f.expect(clean)
}

// The driver was killed after it had recorded Ready but before it opened the gate, and the kubelet does not call again.
func TestGateIsSetRightAtStart(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(f.gate.close("claim-a"))
	f.must(f.gate.open(&claims.Record{Claim: cnichain.Claim{UID: "claim-of-old"}}, nil, nil))
	f.crash()
	f.start("boot-1")
	f.expect(attachedA, "claim-a")
}

// No gate is open while nothing is attached, regardless of the order in which an attach and a stop run.
func TestAttachAndStopRace(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for i := range 30 {
		id := "a-" + strings.Repeat("x", i)
		go func() { _ = f.attach(id, record) }()
		f.eventually("the sandbox is known", func() bool { known, _, _ := f.boxes.State(id); return known })
		<-f.boxes.StopSandbox(id)
		f.eventually("the sandbox is gone", func() bool { known, _, _ := f.boxes.State(id); return !known })
		f.expect(clean)
	}
}

// A claim's metadata contains the interfaces of a single pod, but no interfaces while several pods use the claim.
func TestStepsOfAClaimOfTwoPods(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Devices[0].Exclusive = false
	f.must(f.claims.Hold(record, asItIs))
	f.must(f.attach("a-0", record))
	if f.boxes.AttachedSteps("claim-a") == nil {
		t.Error("AttachedSteps returns no steps for the claim of an attached pod")
	}
	box, _, err := f.boxes.begin("b-0", podNamed("b-0"), f.runs("b-0"), []claims.Record{record})
	f.must(err)
	if steps := f.boxes.AttachedSteps("claim-a"); steps != nil {
		t.Errorf("AttachedSteps = %v for a claim of two pods, want none", steps)
	}
	f.boxes.forget(box)
	if f.boxes.AttachedSteps("claim-a") == nil {
		t.Error("AttachedSteps returns no steps after the second pod of the claim ended")
	}
}
