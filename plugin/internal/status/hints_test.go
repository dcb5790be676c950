package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func TestHintFollowsTheCause(t *testing.T) {
	failed := func(text string) error {
		return &executor.StepError{Step: "tag", Type: "vlan", Command: "ADD", Err: errors.New(text)}
	}
	const calls = `run "kubectl netdra trace pod/web -n shop" to list all calls`
	for want, err := range map[string]error{
		`"kubectl netdra claims pod/web -n shop" shows what it waits for`: errors.New("cannot run the chain"),
		calls: fmt.Errorf("attempt 2: %w", failed("no addresses left")),
		"the kernel of node worker-1 or the device's driver may lack a feature that vlan needs: " +
			cnichain.InstallLinkType("vlan") + ", or remove the setting that the device does not support; " +
			calls: &executor.UndoError{
			Cause: failed("failed to create vlan: operation not supported"), Undo: errors.New("busy")},
	} {
		if got := attachHint("pod/web", "shop", "worker-1", err); got != want {
			t.Errorf("hint for %v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

// No command helps a pod in the host's network namespace: the devices are free, and nothing is wrong with the node.
func TestHintOfHostNetworkIsAboutThePod(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}
	pod.Name = "web"
	err := fmt.Errorf("node n: cannot prepare claim ns/net: %w", claimspec.CheckPod(pod))
	got := PrepareHint(cnichain.Claim{Namespace: "ns", Name: "net"}, err)
	if !strings.Contains(got, "delete the pod") || strings.Contains(got, "netdra") {
		t.Errorf("wrong hint for error %v: %s", err, got)
	}
}
