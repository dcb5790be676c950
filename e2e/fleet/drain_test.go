package fleet

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// TestDrain drains a node with a pod for every persona. The Deployments' pods get links on another node, and the
// drained node returns to its previous state.
func TestDrain(t *testing.T) {
	f := newFleet(t, "drain")
	drained := f.nodes[0]
	t.Cleanup(func() { f.must("uncordon", drained.NodeName()) })
	for _, n := range f.nodes[1:] { // cordoned, so that the pod runs on the first node
		f.must("cordon", n.NodeName())
		t.Cleanup(func() { f.must("uncordon", n.NodeName()) })
	}
	f.create(deployment("service", "moved"))
	var bare []string
	for _, p := range personas()[1:] {
		f.create(watchedPod(p.name, ofTemplate(p.name), drained))
		bare = append(bare, p.name)
	}
	f.ready(nil, bare...)
	f.available("service", drained)
	for _, n := range f.nodes[1:] {
		f.must("uncordon", n.NodeName())
	}

	f.must("drain", drained.NodeName(), "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=80s")
	f.gone(bare...)
	moved := f.available("service", f.nodes[1:]...)
	if place := f.owned(moved)[f.address(moved, "eth1")]; place != "pod service" {
		t.Errorf("the link of the other node is in %q, want the service pod", place)
	}
	f.eventually("the drained node has all of its links", func(ctx context.Context) error {
		now, err := inspect(ctx, drained)
		if err == nil && fmt.Sprint(now) != fmt.Sprint(f.before[drained.NodeName()]) {
			err = fmt.Errorf("the interfaces are now %v", now)
		}
		return err
	})
	f.owned(drained)
}

// deployment returns a Deployment with one pod that has an interface from a persona.
func deployment(name, persona string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
      containers:
      - name: main
        image: localhost/toolbox:e2e
        imagePullPolicy: IfNotPresent
        env: [{name: %[3]s, value: %[1]s}]
        command: [sh, -c, "ip -4 -o addr show dev net1 | grep -q inet || exit %[4]d; exec sleep 86400"]
        resources: {claims: [{name: net}]}
`, name, persona, markVariable, early)
}

// available waits until the pod of a Deployment is Ready on one of the nodes, and returns that node.
func (f *fleet) available(name string, nodes ...*lab.Node) (found *lab.Node) {
	f.Helper()
	f.eventually("the pod of deployment "+name+" is Ready", func(ctx context.Context) error {
		pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		for _, n := range nodes {
			for _, pod := range pods.Items {
				if pod.Spec.NodeName == n.NodeName() && pod.DeletionTimestamp == nil && isReady(&pod) {
					found = n
					return nil
				}
			}
		}
		return fmt.Errorf("there are %d pods, none of them is Ready", len(pods.Items))
	})
	return found
}
