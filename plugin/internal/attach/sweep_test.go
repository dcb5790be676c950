package attach

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// A sandbox is collected only if neither its namespace nor its pod exists in two consecutive sweeps.
func TestEndedSandboxesAreCollected(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(f.attach("b-0", f.prepared("claim-b", "b", "up1")))
	gone := map[string]bool{}
	isGone := func(pod executor.Pod) bool { return gone[pod.Name] }
	suspects := map[string]bool{}
	scan := func(want ...string) {
		t.Helper()
		suspects = f.boxes.collect(suspects, isGone)
		if len(suspects) != len(want) || len(want) > 0 && !suspects[want[0]] {
			t.Errorf("suspects = %v, want %v", suspects, want)
		}
	}
	gone["a"] = true
	scan() // the sandbox still exists in the runtime
	f.ends("a-0")
	gone["a"] = false
	scan() // its pod still exists in the API server
	gone["a"] = true
	scan("a-0")
	gone["a"] = false
	scan() // the API server reports the pod again
	gone["a"] = true
	scan("a-0")
	scan()
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	if !f.ready("b-0") {
		t.Error("the other pod was also detached")
	}
	f.expect("host [up0] pods [dra-b-0[net1]] leases [b-0/net1]", "claim-b")
}

// Attachments from an earlier driver process are also collected, since events are lost during restarts.
func TestEndedSandboxesAreCollectedAfterARestart(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.ends("a-0")
	f.start("boot-1")
	suspects := map[string]bool{}
	for range 2 {
		suspects = f.boxes.collect(suspects, func(executor.Pod) bool { return true })
	}
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	f.expect(clean)
}

func TestSweepsCollect(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.ends("a-0")
	f.podsGone["a"] = true
	sweeper := f.sweeper()
	for range 2 {
		f.must(sweeper.Sweep())
	}
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
}
