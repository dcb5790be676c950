package executor_test

import (
	"context"
	"errors"
	"testing"
)

// A cleanup that can never succeed is abandoned on request, once its device is on the host. The device is then
// available again.
func TestForgetWhatCanNeverBeUndone(t *testing.T) {
	w := newWorkbench(t)
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0"
	plan := w.plan("c", linkThenTune, hardware)
	plan.Steps[0].Quirks.DelFailsWithoutInterface = false // so that DEL is called after the link has left the pod
	made := attachment(plan)
	w.must(w.add(made))
	w.node.Lose()
	w.node.Fail("host-device DEL", errors.New("no IP ranges specified"))
	for range 10 {
		_ = w.del(made)
	}
	left := w.executor.Leftovers()
	if len(left) != 1 || left[0].Quarantines() == nil {
		t.Fatalf("unexpected leftovers: %+v", left)
	}
	failure, err := w.executor.Forget(context.Background(), left[0].Key)
	wantError(t, err, `cannot abandon step "link"`, "its device is not on the host in its original state",
		"restore the device first")
	if failure != nil || len(w.executor.Leftovers()) != 1 {
		t.Errorf("failure = %v, leftovers = %+v, want the leftover kept", failure, w.executor.Leftovers())
	}
	wantError(t, w.executor.Quarantined(&hardware.Device), "quarantine")

	w.node.Find()
	w.node.AddHostLink("up0")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if failure, err = w.executor.Forget(ended, left[0].Key); err == nil || failure != nil {
		t.Errorf("without time for an attempt, failure = %v, error = %v, want only an error", failure, err)
	}
	if len(w.executor.Leftovers()) != 1 {
		t.Error("the leftover was deleted without an attempt")
	}
	failure, err = w.executor.Forget(context.Background(), left[0].Key)
	w.must(err)
	wantError(t, failure, "no IP ranges specified")
	w.restart() // the leftover is also deleted from the journal
	if left := w.executor.Leftovers(); len(left) > 0 {
		t.Errorf("unexpected leftovers: %+v", left)
	}
	w.must(w.executor.Quarantined(&hardware.Device))
	w.must(w.add(w.onOtherSandbox(plan)))
}

// If the rollback succeeds after all, it is completed rather than abandoned.
func TestForgetWhatCanBeUndone(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	w.must(w.add(made))
	w.node.Fail("tuning DEL", errors.New("bug"))
	w.executor.GiveUpAttempts = 1
	_ = w.del(made)
	w.node.Fail("tuning DEL", nil)
	for _, leftover := range w.executor.Leftovers() {
		if failure, err := w.executor.Forget(context.Background(), leftover.Key); failure != nil || err != nil {
			t.Errorf("forgetting %s: failure %v, error %v", leftover.Key, failure, err)
		}
	}
	if failure, err := w.executor.Forget(context.Background(), "other"); failure != nil || err != nil {
		t.Errorf("for an unknown key, failure = %v, error = %v, want none", failure, err)
	}
	w.expect(cleanNode)
}
