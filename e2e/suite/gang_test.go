package suite

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Four pods form a gang. One claim belongs to their PodGroup, and each pod has an interface from this claim (KEP-5729).
// Each pod also has its own claim, which it lists first (docs/limits.md). A container that restarts after the driver
// was killed still has its interfaces, and nothing remains after the last pod has terminated.
func TestGang(t *testing.T) {
	e := newGangEnv(t)
	e.offerMacvlan("ga0", "10.183.0.0/24")
	e.offerMacvlan("ga1", "10.184.0.0/24")
	before := e.state()
	e.create(`
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec:
  schedulingPolicy: {gang: {minCount: 4}}
  resourceClaims: [{name: net, resourceClaimTemplateName: ga0}]
`)
	names := []string{"rank0", "rank1", "rank2", "rank3"}
	member := func(name string) string {
		return strings.NewReplacer(
			"  containers:", "  schedulingGroup: {podGroupName: gang}\n  containers:",
			"[{name: net, ", "[{name: own, resourceClaimTemplateName: ga1}, {name: net, ",
			"[{name: net}]", "[{name: own}, {name: net}]",
		).Replace(watchedPod(name, "resourceClaimTemplateName: ga0", whole, second))
	}
	for _, name := range names[:3] {
		e.create(member(name))
	}
	e.create(member(names[3])) // no pod is scheduled before the last one exists
	e.ready(names...)
	seen := map[string]string{}
	for _, name := range names {
		shown := e.inPod(name, "ip", "-4", "-o", "addr")
		if !containsAll(shown, []string{"net1    inet 10.184.0.", "net2    inet 10.183.0."}) {
			t.Errorf("pod %s has unexpected addresses:\n%s", name, shown)
		}
		address := strings.Fields(shown[strings.Index(shown, "net2"):])[2]
		if other, duplicate := seen[address]; duplicate {
			t.Errorf("pods %s and %s both have the address %s", name, other, address)
		}
		seen[address] = name
	}
	if output, err := e.netdra("claims"); err != nil || strings.Contains(output, "unused") ||
		!containsAll(output, names) {
		t.Errorf("netdra claims returned %v\n%s", err, output)
	}
	e.signal(stack.Driver, syscall.SIGKILL)
	e.driverReady()
	e.containerStartsAgain("rank2")
	e.neverStartedEarly()
	e.deleting("rank0")
	e.gone("rank0")
	if shown := e.inPod("rank1", "ip", "-4", "-o", "addr"); !strings.Contains(shown, "net2    inet 10.183.0.") {
		t.Errorf("after another pod of the group ended, rank1 has lost the address of net2:\n%s", shown)
	}
	e.deleting(names[1:]...)
	e.gone(names[1:]...)
	if output, err := e.kubectl("", "delete", "podgroup", "gang"); err != nil {
		t.Error(err, output)
	}
	e.asItWas(before)
}

// newGangEnv starts a cluster with the feature gates for scheduling pod groups with claims, which are beta and off by
// default in Kubernetes 1.37.
func newGangEnv(t *testing.T) *env {
	t.Helper()
	cluster, client := testcluster.ForTest(t, func(ctx context.Context) (*lab.Cluster, kubernetes.Interface, error) {
		return upWith(ctx, *clusterName+"-gang", lab.Options{
			FeatureGates:  map[string]bool{"GenericWorkload": true, "DRAWorkloadResourceClaims": true},
			RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
		})
	})
	if err := testcluster.Install(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return newEnvOn(t, cluster, client, "gang")
}

// containerStartsAgain kills a watched pod's container, and waits until its replacement is running.
func (e *env) containerStartsAgain(pod string) {
	e.Helper()
	for _, pid := range e.containersOf(pod) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			e.Fatal(err)
		}
	}
	e.eventually(fmt.Sprintf("the container of pod %s runs again", pod), func(ctx context.Context) (bool, error) {
		found, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, pod, metav1.GetOptions{})
		return err == nil && isReady(found) && len(found.Status.ContainerStatuses) > 0 &&
			found.Status.ContainerStatuses[0].RestartCount > 0, err
	})
}
