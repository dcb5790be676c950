package suite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/observer"
	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// watchedPod returns a pod whose container exits immediately if its interfaces are missing when it starts. The observer
// watches the container while it is running. claim is the field that refers to the pod's claim, for example
// "resourceClaimName: x".
func watchedPod(name, claim string, interfaces ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {watched: "true"}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  resourceClaims: [{name: net, %s}]
  containers:
%s`, name, claim, watchedContainer("main", name, "[{name: net}]", interfaces...))
}

// watchedContainer returns an element for a list of containers. claims is the list of claims that the container
// references.
func watchedContainer(name, pod, claims string, interfaces ...string) string {
	return fmt.Sprintf(`  - name: %s
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    env: [{name: %s, value: %s}, {name: %s, value: "%s"}]
    command: [sh, -c, "%s exec sleep 86400"]
    resources: {claims: %s}
`, name, observer.Pod, pod, observer.Interfaces, strings.Join(interfaces, ","), sees(interfaces), claims)
}

// early is the exit status of a container that started without its interfaces. Containers may also exit for other
// reasons, for example if the runtime is killed while it starts a container.
const early = 77

// sees returns a shell command that exits the shell unless each interface has an address.
func sees(interfaces []string) string {
	var all strings.Builder
	for _, name := range interfaces {
		fmt.Fprintf(&all, "ip -4 -o addr show dev %s | grep -q inet || exit %d; ", name, early)
	}
	return all.String()
}

// observe watches every watched container until the end of the test, and fails the test if a container runs without its
// interfaces. At most one pod at a time may have an interface on each of the exclusive links.
func (e *env) observe(exclusive ...string) {
	e.Helper()
	links := map[int]string{}
	for _, name := range exclusive {
		links[e.linkIndex(name)] = name
	}
	watching := observer.New(e.fileOnNode("/proc"), links)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watching.Run(ctx)
	}()
	e.Cleanup(func() {
		stop()
		<-ended
		findings, processes, looks := watching.Report()
		e.Logf("the observer took %d readings of %d processes", looks, processes)
		for _, finding := range findings {
			e.Errorf("the observer found: %s", finding)
		}
		if processes == 0 {
			e.Error("the observer did not see any watched process")
		}
	})
}

func (e *env) linkIndex(name string) int {
	e.Helper()
	handle, err := e.cluster.Netlink()
	if err != nil {
		e.Fatal(err)
	}
	defer handle.Close()
	link, err := handle.LinkByName(name)
	if err != nil {
		e.Fatalf("cannot find link %s: %v", name, err)
	}
	return link.Attrs().Index
}

// containersOf returns the host PIDs of a watched pod's containers.
func (e *env) containersOf(pod string) []int {
	e.Helper()
	node, err := os.Readlink(e.fileOnNode("/proc/1/ns/mnt"))
	if err != nil {
		e.Fatal(err)
	}
	pids, err := process.PIDs(process.HasVariable(observer.Pod, pod),
		process.OutsideNamespace("mnt", node)) // excludes the runtime's process before execve
	if err != nil {
		e.Fatal(err)
	}
	return pids
}

// create creates objects from YAML. Objects in the test's namespace are removed together with the namespace at the end.
// The test itself must remove all other objects.
func (e *env) create(yaml string) {
	e.Helper()
	if output, err := e.kubectl(yaml, "create", "-f", "-"); err != nil {
		e.Fatalf("cannot create: %v\n%s\n%s", err, output, yaml)
	}
}

// deleting deletes pods without waiting until they are gone.
func (e *env) deleting(pods ...string) {
	e.Helper()
	if output, err := e.kubectl("", append([]string{"delete", "pod", "--wait=false"}, pods...)...); err != nil {
		e.Fatalf("cannot delete: %v\n%s", err, output)
	}
}

// gone waits until pods no longer exist.
func (e *env) gone(pods ...string) {
	e.Helper()
	e.allPods("are gone", pods, func(_ *corev1.Pod, err error) (bool, error) { return apierrors.IsNotFound(err), err })
}

// neverStartedEarly checks that no container in a watched pod that references the claim started without its interfaces.
func (e *env) neverStartedEarly() {
	e.Helper()
	for _, pod := range e.watchedPods(context.Background()) {
		if startedEarly(&pod, "main") {
			e.Errorf("pod %s was started without its interfaces", pod.Name)
		}
	}
}

// startedEarly reports whether a container in a pod started without its interfaces.
func startedEarly(pod *corev1.Pod, container string) bool {
	for _, status := range append(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses...) {
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated,
			status.LastTerminationState.Terminated} {
			if status.Name == container && ended != nil && ended.ExitCode == early {
				return true
			}
		}
	}
	return false
}

// watchedPods returns the test's watched pods that currently exist.
func (e *env) watchedPods(ctx context.Context) []corev1.Pod {
	e.Helper()
	pods, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: "watched=true"})
	if err != nil || len(pods.Items) == 0 {
		e.Fatalf("found no watched pods: %v", err)
	}
	return pods.Items
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }
