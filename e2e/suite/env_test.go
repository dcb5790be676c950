package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// patience is the time limit for every wait in a test.
const patience = 3 * time.Minute

// env is the part of the cluster that a single test uses.
type env struct {
	*testing.T
	cluster   *lab.Cluster
	client    kubernetes.Interface
	namespace string
	explained sync.Once
}

// newEnv creates a namespace for a test and, at the end of the test, checks that nothing remains on the node.
func newEnv(t *testing.T, namespace string) *env {
	t.Helper()
	cluster, client := theCluster.Get(t)
	return newEnvOn(t, cluster, client, namespace)
}

// newEnvOn is like newEnv, but uses the test's own cluster.
func newEnvOn(t *testing.T, cluster *lab.Cluster, client kubernetes.Interface, namespace string) *env {
	t.Helper()
	e := &env{T: t, cluster: cluster, client: client, namespace: namespace}
	e.driverReady() // another test may have stopped or killed the driver
	before := e.state()
	t.Cleanup(func() {
		defer e.explain()
		e.driverReady()
		e.asItWas(before)
	})
	e.create(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace))
	t.Cleanup(func() {
		e.explain()
		// The next test uses another namespace, so it only has to wait until the pods on the node have terminated.
		if output, err := e.kubectl("", "delete", "namespace", namespace, "--wait=false"); err != nil {
			t.Error(err, output)
		}
	})
	e.eventually("default ServiceAccount", func(ctx context.Context) (bool, error) {
		_, err := e.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	return e
}

// part returns the same env for a subtest.
func (e *env) part(t *testing.T) *env {
	return &env{T: t, cluster: e.cluster, client: e.client, namespace: e.namespace}
}

// lines returns the lines of a file. It returns no lines if the file cannot be read.
func (e *env) lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\n")
}

// explain prints the information needed to diagnose a failed test. Only the first call prints anything. Call it before
// anything is removed.
func (e *env) explain() {
	if e.Failed() {
		e.explained.Do(e.showEvidence)
	}
}

func (e *env) showEvidence() {
	for _, args := range [][]string{
		{"kubectl", "-n", e.namespace, "get", "pods,resourceclaims", "-o", "wide"},
		{"kubectl", "-n", e.namespace, "get", "events", "--sort-by=.lastTimestamp"},
		{"kubectl", "-n", stack.Namespace, "logs", "daemonset/" + stack.Driver, "--tail=60"},
	} {
		output, err := e.cluster.Exec(context.Background(), args...)
		e.Logf("%s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// apply applies YAML, and removes the objects at the end of the test.
func (e *env) apply(yaml string) {
	e.Helper()
	if output, err := e.kubectl(yaml, "apply", "-f", "-"); err != nil {
		e.Fatalf("cannot apply: %v\n%s\n%s", err, output, yaml)
	}
	e.Cleanup(func() {
		e.explain()
		e.remove(yaml)
	})
}

// remove deletes the objects in YAML, and waits until they no longer exist.
func (e *env) remove(yaml string) {
	e.Helper()
	if output, err := e.kubectl(yaml, "delete", "--ignore-not-found", "--wait=true", "--timeout=60s", "-f",
		"-"); err != nil {
		e.Errorf("cannot delete: %v\n%s", err, output)
	}
}

// kubectl runs kubectl in the test's namespace with YAML as its input.
func (e *env) kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := e.cluster.Command(ctx, append([]string{"kubectl", "-n", e.namespace}, args...)...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	err := e.cluster.Run(cmd)
	return output.String(), err
}

// inPod runs a command in a pod's first container.
func (e *env) inPod(pod string, args ...string) string {
	e.Helper()
	output, err := e.kubectl("", append([]string{"exec", pod, "--"}, args...)...)
	if err != nil {
		e.Fatalf("in pod %s, %s failed: %v\n%s", pod, strings.Join(args, " "), err, output)
	}
	return output
}

// reaches waits until an address replies to a ping that a pod sends through an interface. A busy machine may drop
// individual pings.
func (e *env) reaches(pod, ifName, address string) {
	e.Helper()
	e.eventually(fmt.Sprintf("pod %s reaches %s through %s", pod, address, ifName), func(context.Context) (bool, error) {
		output, err := e.kubectl("", "exec", pod, "--", "ping", "-c", "1", "-w", "5", "-I", ifName, address)
		return err == nil && strings.Contains(output, "1 packets received"),
			fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be no error
	})
}

// eventually waits until a condition is true. The failure message contains the last error that the condition returned.
func (e *env) eventually(what string, condition func(context.Context) (bool, error)) {
	e.Helper()
	if err := waitFor(condition); err != nil {
		e.Fatalf("timed out after %s: %s: %v", patience, what, err)
	}
}

// waitFor waits, for up to patience, until a condition is true. It returns the last error that the condition returned.
func waitFor(condition func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			done, err := condition(ctx)
			if ctx.Err() == nil || last == nil { // do not replace an error with a timeout
				last = err
			}
			return done, nil
		})
	if err != nil {
		return cmp.Or(last, err)
	}
	return nil
}

// allPods waits until a condition is true for each of the pods. patience limits the time until the condition becomes
// true for one more pod: concurrent pods progress one at a time, in any order.
func (e *env) allPods(what string, pods []string, condition func(*corev1.Pod, error) (bool, error)) {
	e.Helper()
	check := func(ctx context.Context, name string) (bool, error) {
		return condition(e.client.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{}))
	}
	before := 0
	for i := 0; i < len(pods); {
		err := waitFor(func(ctx context.Context) (bool, error) { return check(ctx, pods[i]) })
		if err == nil {
			i++
			continue
		}
		now := i
		for _, name := range pods[i:] {
			if done, _ := check(context.Background(), name); done {
				now++
			}
		}
		if now <= before {
			e.Fatalf("stuck: %d of %d pods %s, no others after %s; pod %s: %v", now, len(pods), what, patience, pods[i],
				err)
		}
		before = now
	}
}

// ready waits until pods are Ready.
func (e *env) ready(pods ...string) {
	e.Helper()
	e.allPods("are Ready", pods, func(pod *corev1.Pod, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		return isReady(pod), fmt.Errorf("the pod is %s", pod.Status.Phase)
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// event waits for an event for an object whose reason and message contain all texts.
func (e *env) event(object string, texts ...string) {
	e.Helper()
	e.anyEvent(object, texts)
}

// anyEvent waits for an event for an object whose reason and message contain all texts of one of the alternatives.
func (e *env) anyEvent(object string, alternatives ...[]string) {
	e.Helper()
	e.eventually(fmt.Sprintf("event of %s with %q", object, alternatives), func(ctx context.Context) (bool, error) {
		events, err := e.client.CoreV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		var seen []string
		for _, event := range events.Items {
			if event.InvolvedObject.Name != object {
				continue
			}
			seen = append(seen, event.Message)
			said := event.Reason + " " + event.Message
			if slices.ContainsFunc(alternatives, func(texts []string) bool { return containsAll(said, texts) }) {
				return true, nil
			}
		}
		return false, fmt.Errorf("events are %q", seen)
	})
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// deviceStatus waits until the status of a pod's claim contains all texts, and returns it as JSON.
func (e *env) deviceStatus(pod string, texts ...string) string {
	e.Helper()
	var status string
	e.eventually(fmt.Sprintf("claim status of pod %s with %q", pod, texts), func(context.Context) (bool, error) {
		var err error
		status, err = e.kubectl("", "get", "resourceclaims", "-o", fmt.Sprintf(
			`jsonpath={.items[?(@.metadata.ownerReferences[0].name==%q)].status.devices}`, pod))
		if err == nil && !containsAll(status, texts) {
			err = errors.New(status)
		}
		return err == nil, err
	})
	return status
}

// veth creates a pair of links on the node for the test.
func (e *env) veth(name string) {
	e.Helper()
	if err := e.cluster.AddVeth(name, name+"p"); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := e.cluster.DeleteLink(name + "p"); err != nil {
			e.Error(err)
		}
	})
}

// link waits until a link exists on the node, and returns ip's output for the link.
func (e *env) link(name string) string {
	e.Helper()
	var shown string
	e.eventually("link "+name+" is on the node", func(ctx context.Context) (bool, error) {
		output, err := e.cluster.Exec(ctx, "ip", "-o", "link", "show", name)
		shown = string(output)
		return err == nil, err
	})
	return shown
}

// offer waits until devices are published.
func (e *env) offer(devices ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("devices %v are offered", devices), func(ctx context.Context) (bool, error) {
		slices, err := e.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		offered := map[string]bool{}
		for _, slice := range slices.Items {
			for _, device := range slice.Spec.Devices {
				offered[device.Name] = true
			}
		}
		for _, device := range devices {
			if !offered[device] {
				return false, fmt.Errorf("the offered devices are %v", offered)
			}
		}
		return true, nil
	})
}

// offerMacvlan creates a link and everything that a pod needs to get a macvlan interface on it. The policy, the
// topology and the claim template are named after the link.
func (e *env) offerMacvlan(link, subnet string) {
	e.Helper()
	e.veth(link)
	e.apply(documents(expose(link, "macvlan", true, link), topology(link, fmt.Sprintf(`
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: %s}}`, link, subnet)), claimTemplate(link, link+"-uplink")))
	e.offer(link)
}

// fileOnNode returns the path at which a file on the node is visible to this process.
func (e *env) fileOnNode(elements ...string) string {
	e.Helper()
	path, err := e.cluster.NodePath(filepath.Join(elements...))
	if err != nil {
		e.Fatal(err)
	}
	return path
}

// filesOnNode finds the node's files that match a pattern, and returns the paths at which they are visible to this
// process.
func (e *env) filesOnNode(elements ...string) []string {
	e.Helper()
	paths, err := e.cluster.NodeGlob(filepath.Join(elements...))
	if err != nil {
		e.Fatal(err)
	}
	return paths
}
