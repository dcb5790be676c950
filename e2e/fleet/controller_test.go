package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// lease is the name of the lease held by the active controller.
const lease = "dra-network-controller"

// leaderless is a topology that is created while no controller is active. invalid is a topology that every webhook
// rejects, and mistake is the field that is named in the webhook's message.
const (
	leaderless = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: leaderless}
spec:
  steps:
  - {name: link, type: netdev, selector: {cel: 'device.attributes["dra.networking"].ifName == "eth1"'}}
`
	invalid = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: invalid}
spec:
  steps:
  - {name: link, type: netdev, selector: {cel: 'device.attributes['}}
`
	mistake = "spec.steps[0].selector.cel"
)

// TestControllerFailover runs two controllers, and kills the active one repeatedly until the standby acquires the
// lease. In the meantime, the standby's webhook responds. The classes for a topology that is created in the meantime
// are created afterwards.
func TestControllerFailover(t *testing.T) {
	f := newFleet(t, "failover")
	scale := func(replicas int) {
		f.must("-n", stack.Namespace, "scale", "deployment/"+stack.Controller, fmt.Sprintf("--replicas=%d", replicas))
		f.must("-n", stack.Namespace, "rollout", "status", "deployment/"+stack.Controller, "--timeout=60s")
	}
	scale(2)
	t.Cleanup(func() { scale(1) })
	leader := f.leader()
	t.Cleanup(func() { f.must("delete", "networktopology", "leaderless", "--ignore-not-found") })
	f.killPod(leader)
	f.apply(leaderless)
	// The webhooks' failurePolicy is Ignore: until the API server has detected that a controller was killed, it still
	// sends some requests to that controller, and accepts the objects if these requests fail.
	t.Cleanup(func() { f.must("delete", "networktopology", "invalid", "--ignore-not-found") })
	f.eventually("an invalid topology is refused for its mistake", func(context.Context) error {
		output, err := f.kubectl(invalid, "create", "-f", "-")
		if err == nil {
			f.must("delete", "networktopology", "invalid")
			return errors.New("it was accepted")
		}
		if !strings.Contains(output, mistake) {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	f.eventually("another controller works", func(context.Context) error {
		if now := f.leader(); now == leader {
			f.killPod(leader) // the restarted controller must not become the leader again
			return fmt.Errorf("%s still has the lease", leader)
		}
		return nil
	})
	f.eventually("the topology has its class", func(ctx context.Context) error {
		_, err := f.client.ResourceV1().DeviceClasses().Get(ctx, "leaderless-link", metav1.GetOptions{})
		return err
	})
}

// leader returns the name of the active controller's pod.
func (f *fleet) leader() string {
	f.Helper()
	var holder string
	f.eventually("a controller has the lease", func(ctx context.Context) error {
		found, err := f.client.CoordinationV1().Leases(stack.Namespace).Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Spec.HolderIdentity == nil || *found.Spec.HolderIdentity == "" {
			return errors.New("the lease has no holder")
		}
		holder, _, _ = strings.Cut(*found.Spec.HolderIdentity, "_")
		return nil
	})
	return holder
}

// killPod kills a pod's process on its node, if there is one.
func (f *fleet) killPod(name string) {
	f.Helper()
	for _, n := range f.nodes {
		if pid := f.process(n, "HOSTNAME="+name); pid != "" {
			f.kill(n, pid)
			return
		}
	}
}
