package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// clusterName distinguishes concurrent runs.
var clusterName = flag.String("cluster", "fleet", "name of the local Kubernetes that is started")

// patience is the time limit for every wait in a test.
const patience = 3 * time.Minute

// theCluster is the cluster for this run. Tests use it sequentially, each with its own namespace.
var theCluster = testcluster.Shared{Start: start}

func TestMain(m *testing.M) { os.Exit(theCluster.Main(m)) }

// start starts a cluster with three nodes and with the feature gates for scheduling pod groups, which are beta and off
// by default in Kubernetes 1.37.
func start(ctx context.Context) (*lab.Cluster, kubernetes.Interface, error) {
	return testcluster.Up(ctx, lab.Options{
		Name: *clusterName, Nodes: 3, NodeName: "node",
		FeatureGates:  map[string]bool{"GenericWorkload": true, "DRAWorkloadResourceClaims": true},
		RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
	})
}

// fleet is the part of the cluster that a single test uses.
type fleet struct {
	*testing.T
	cluster   *lab.Cluster
	client    kubernetes.Interface
	namespace string
	nodes     []*lab.Node
	before    map[string]shape
	explained sync.Once
}

// newFleet creates a namespace for a test, and devices for every persona on every node. At the end of the test, it
// checks that all nodes are back in their initial state.
func newFleet(t *testing.T, namespace string) *fleet {
	t.Helper()
	cluster, client := theCluster.Get(t)
	f := &fleet{T: t, cluster: cluster, client: client, namespace: namespace, nodes: cluster.Nodes(),
		before: map[string]shape{}}
	f.apply(objects()) // the same for all tests, so that the driver does not have to publish the devices again
	f.create(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace))
	f.create(templates())
	f.eventually("default ServiceAccount", func(ctx context.Context) error {
		_, err := f.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for _, n := range f.nodes {
		f.offers(n)
		now, err := inspect(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		f.before[n.NodeName()] = now
	}
	t.Cleanup(func() {
		f.explain()
		if output, err := f.kubectl("", "delete", "namespace", namespace, "--timeout=90s"); err != nil {
			t.Error(err, output)
		}
		f.asItWas()
	})
	return f
}

// explain prints the information needed to diagnose a failed test. Only the first call prints anything.
func (f *fleet) explain() {
	if f.Failed() {
		f.explained.Do(f.showEvidence)
	}
}

func (f *fleet) showEvidence() {
	for _, args := range [][]string{
		{"kubectl", "get", "nodes,pods,resourceclaims", "-A", "-o", "wide"},
		{"kubectl", "-n", f.namespace, "get", "events", "--sort-by=.lastTimestamp"},
		{"kubectl", "-n", stack.Namespace, "logs", "-l", "app.kubernetes.io/name=" + stack.Driver, "--prefix",
			"--tail=40"},
	} {
		output, err := f.cluster.Exec(context.Background(), args...)
		f.Logf("%s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// apply applies YAML. The objects are not removed after the test.
func (f *fleet) apply(yaml string) {
	f.Helper()
	if output, err := f.kubectl(yaml, "apply", "-f", "-"); err != nil {
		f.Fatalf("cannot apply: %v\n%s\n%s", err, output, yaml)
	}
}

// create creates objects that are deleted together with the test's namespace.
func (f *fleet) create(yaml string) {
	f.Helper()
	if output, err := f.kubectl(yaml, "create", "-f", "-"); err != nil {
		f.Fatalf("cannot create: %v\n%s\n%s", err, output, yaml)
	}
}

// kubectl runs kubectl in the test's namespace with YAML as its input.
func (f *fleet) kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := f.cluster.Command(ctx, append([]string{"kubectl", "-n", f.namespace}, args...)...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	err := f.cluster.Run(cmd)
	return output.String(), err
}

// must runs kubectl, and fails the test if kubectl fails.
func (f *fleet) must(args ...string) string {
	f.Helper()
	output, err := f.kubectl("", args...)
	if err != nil {
		f.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// eventually waits until a check returns nil.
func (f *fleet) eventually(what string, condition func(context.Context) error) {
	f.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			// Use a separate context: otherwise, the error from the expired wait would hide the error from the check.
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			last = condition(ctx)
			return last == nil, nil
		})
	if err != nil {
		f.Fatalf("timed out after %s: %s: %v", patience, what, last)
	}
}

// pod returns a pod, which must exist.
func (f *fleet) pod(name string) *corev1.Pod {
	f.Helper()
	pod, err := f.client.CoreV1().Pods(f.namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return pod
}

// ready waits until pods are Ready. If restarts is not nil, each pod must have restarted more often than it specifies.
func (f *fleet) ready(restarts map[string]int32, pods ...string) {
	f.Helper()
	for _, name := range pods {
		f.eventually("pod "+name+" is Ready", func(ctx context.Context) error {
			pod, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			least, restarted := restarts[name]
			if !isReady(pod) || restarted && pod.Status.ContainerStatuses[0].RestartCount <= least {
				return fmt.Errorf("pod is %+v", pod.Status)
			}
			return nil
		})
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restarts returns the number of restarts for each pod.
func (f *fleet) restarts(pods ...string) map[string]int32 {
	f.Helper()
	counts := map[string]int32{}
	for _, name := range pods {
		counts[name] = f.pod(name).Status.ContainerStatuses[0].RestartCount
	}
	return counts
}

// neverEarly checks that no container started without its interface.
func (f *fleet) neverEarly(pods ...string) {
	f.Helper()
	for _, name := range pods {
		for _, status := range f.pod(name).Status.ContainerStatuses {
			if ended := status.LastTerminationState.Terminated; ended != nil && ended.ExitCode == early {
				f.Errorf("the container of pod %s started without its interface", name)
			}
		}
	}
}

// remove deletes pods and waits until they no longer exist.
func (f *fleet) remove(pods ...string) {
	f.Helper()
	f.must(append([]string{"delete", "pod", "--wait=false"}, pods...)...)
	f.gone(pods...)
}

func (f *fleet) gone(pods ...string) {
	f.Helper()
	for _, name := range pods {
		f.eventually("pod "+name+" is gone", func(ctx context.Context) error {
			_, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it still exists"), err)
		})
	}
}

// offers waits until all devices on a node are published.
func (f *fleet) offers(n *lab.Node) {
	f.Helper()
	f.eventually("all devices of "+n.NodeName()+" are offered", func(ctx context.Context) error {
		list, err := f.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		offered := map[string]bool{}
		for _, slice := range list.Items {
			for _, device := range slice.Spec.Devices {
				if slice.Spec.NodeName != nil && *slice.Spec.NodeName == n.NodeName() && len(device.Taints) == 0 {
					offered[device.Name] = true
				}
			}
		}
		for _, p := range personas() {
			if !offered[p.link] {
				return fmt.Errorf("the offered devices are %v", offered)
			}
		}
		return nil
	})
}
