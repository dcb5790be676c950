package attach

import (
	"errors"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func TestStatesOfSandboxes(t *testing.T) {
	box := newSandbox("id", executor.Pod{Namespace: "ns", Name: "a"}, &executor.Attachment{})
	if got := box.state(); got.State != "attaching" {
		t.Errorf("new: %+v", got)
	}
	box.phase, box.failure = phaseDetaching, errors.New("no")
	if got := box.state(); got.State != "detaching" || got.Failure != "no" {
		t.Errorf("stopped: %+v", got)
	}
}
