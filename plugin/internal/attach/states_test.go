package attach

import (
	"errors"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func TestStatesOfSandboxes(t *testing.T) {
	box := newSandbox("id", executor.Pod{Namespace: "ns", Name: "a"}, &executor.Attachment{})
	if got := box.view().state(box, "n"); got.State != "attaching" {
		t.Errorf("state of a new sandbox = %+v", got)
	}
	box.phase, box.failure = phaseDetaching, errors.New("no")
	if got := box.view().state(box, "n"); got.State != "detaching" || got.Failure != "no" {
		t.Errorf("state of a stopped sandbox = %+v", got)
	}
	box.failure = &executor.StepError{Type: "bridge", Err: errors.New("vlan tag: operation not supported")}
	if got := box.view().state(box, "n"); !strings.Contains(got.FailureHint,
		"kernel of node n or the device's driver may lack a feature that bridge needs") {
		t.Errorf("state after a failure for lack of kernel support = %+v", got)
	}
}
