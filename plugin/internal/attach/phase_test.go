package attach

import (
	"errors"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// boxIn returns a sandbox in the given phase, with two claims, a and b.
func boxIn(p phase) *sandbox {
	box := newSandbox("id", executor.Pod{UID: "pod"}, twoClaims())
	if box.phase = p; p.isAttached() {
		box.attached = twoClaims().Steps
	}
	return box
}

func twoClaims() *executor.Attachment {
	return &executor.Attachment{NetNS: "/netns", Steps: []executor.StepRecord{
		{Claim: cnichain.Claim{UID: "a"}, Phase: executor.StepAdded},
		{Claim: cnichain.Claim{UID: "b"}, Phase: executor.StepAdded},
	}}
}

// Each transition is allowed only from certain phases, and changes nothing in other phases. The phases are listed in
// declaration order: attaching, opening, ready, detaching, gone.
func TestTransitions(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*sandbox)
		want string
	}{
		"open":    {func(b *sandbox) { b.markOpening(twoClaims()) }, "opening opening ready detaching gone"},
		"reclose": {func(b *sandbox) { b.resumeAttaching() }, "attaching attaching ready detaching gone"},
		"finish":  {func(b *sandbox) { b.markReady() }, "attaching ready ready detaching gone"},
		"fail while RunPodSandbox waits": {func(b *sandbox) { b.reportFailure(errors.New("no")) },
			"detaching detaching detaching detaching gone"},
		"fail in the background": {func(b *sandbox) { _ = b.stopWaiting(); b.reportFailure(errors.New("no")) },
			"attaching opening ready detaching gone"},
		"stop": {func(b *sandbox) { b.markReleasing(nil) }, "detaching detaching detaching detaching " +
			"gone"},
		"release one claim": {func(b *sandbox) { b.markReleasing([]string{"a"}) }, "detaching detaching ready " +
			"detaching gone"},
		"release both": {func(b *sandbox) { b.markReleasing([]string{"a", "b"}) },
			"detaching detaching detaching detaching gone"},
		"release one after the other": {func(b *sandbox) { b.markReleasing([]string{"a"}); b.markReleasing([]string{"b"}) },
			"detaching detaching detaching detaching gone"},
		"undone": {func(b *sandbox) { b.removeClaims(b.markReleasing(nil)) }, "gone gone gone gone gone"},
	} {
		var got []string
		for p := phaseAttaching; p <= phaseGone; p++ {
			box := boxIn(p)
			test.do(box)
			got = append(got, box.phase.String())
			if box.phase.isAttached() != (box.attached != nil) {
				t.Errorf("%s in %s: %d steps are attached in phase %s", name, p, len(box.attached), box.phase)
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s leads to phases %s\nwant %s", name, got, test.want)
		}
	}
}

// Each call returns the correct result in every phase. While a sandbox is being detached, no goroutine would correct a
// gate that was opened, or a failure that was reported, by mistake.
func TestAnswersOfTransitions(t *testing.T) {
	for p := phaseAttaching; p <= phaseGone; p++ {
		if opened := boxIn(p).markOpening(twoClaims()); opened != (p == phaseAttaching) {
			t.Errorf("markOpening in %s = %t", p, opened)
		}
		box := boxIn(p)
		if told := box.reportFailure(errors.New("no")); !told || box.stopWaiting() == nil {
			t.Errorf("RunPodSandbox does not receive the failure of a sandbox in phase %s", p)
		}
		box = boxIn(p)
		if err := box.stopWaiting(); err != nil || box.reportFailure(errors.New("no")) || !box.view().background {
			t.Errorf("RunPodSandbox returned %v, but receives a later failure of a sandbox in phase %s", err, p)
		}
		stopped := false
		box = boxIn(p)
		box.setStop(func() { stopped = true })
		if stopped != p.isEnding() {
			t.Errorf("a chain that begins in phase %s is stopped: %t", p, stopped)
		}
		if box.markReleasing(nil); !stopped {
			t.Errorf("a chain that runs in phase %s is not stopped", p)
		}
	}
}

// RunPodSandbox waits until the sandbox is ready or has been rolled back.
func TestRunPodSandboxIsAnswered(t *testing.T) {
	answered := func(b *sandbox) bool {
		select {
		case <-b.answer:
			return true
		default:
			return false
		}
	}
	box := boxIn(phaseAttaching)
	if box.markOpening(twoClaims()); answered(box) {
		t.Error("an answer was sent before the gates were open")
	}
	if box.markReady(); !answered(box) {
		t.Error("no answer was sent when the sandbox became ready")
	}
	box = boxIn(phaseAttaching)
	leaving := box.markReleasing(nil)
	if answered(box) {
		t.Error("an answer was sent while a device might be attached")
	}
	if box.removeClaims(leaving[:1]) || answered(box) {
		t.Error("an answer was sent while one claim remained")
	}
	if !box.removeClaims(leaving) || !answered(box) {
		t.Error("no answer was sent when no claims remained")
	}
}
