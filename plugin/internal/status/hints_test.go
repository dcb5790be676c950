package status

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func TestHintFollowsTheCause(t *testing.T) {
	failed := func(text string) error {
		return &executor.StepError{Step: "tag", Type: "vlan", Command: "ADD", Err: errors.New(text)}
	}
	const calls = `"kubectl netdra trace pod/web -n shop" shows all calls`
	for want, err := range map[string]error{
		`"kubectl netdra claims pod/web -n shop" shows what it waits for`: errors.New("cannot run the chain"),
		calls: fmt.Errorf("attempt 2: %w", failed("no addresses left")),
		"the kernel of node worker-1 may lack what vlan needs, such as a module: load it there; " + calls: &executor.UndoError{
			Cause: failed("failed to create vlan: operation not supported"), Undo: errors.New("busy")},
	} {
		if got := attachHint("pod/web", "shop", "worker-1", err); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}
