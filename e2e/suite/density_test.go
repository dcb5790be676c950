package suite

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// crowd is the number of pods that start concurrently. By default, a node accepts 110 pods; starting that many takes
// four minutes on two processors.
var crowd = flag.Int("pods", 110, "number of pods of TestFullNode")

// memoryLimit is the memory, in MiB, that the driver may use with 110 pods. It is not checked in runs with fewer pods.
const memoryLimit = 128

// All pods of a full node are started together. One of them has four interfaces. Afterwards, the driver is back in its
// initial state.
func TestFullNode(t *testing.T) {
	e := newEnv(t, "full")
	links := []string{"fn0", "fn1", "fn2", "fn3"}
	var steps strings.Builder
	var classes []string
	for i, link := range links {
		e.veth(link)
		fmt.Fprintf(&steps, `
- name: uplink%d
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.143.%d.0/24}}`, i, link, i)
		classes = append(classes, fmt.Sprintf("four-uplink%d", i))
	}
	e.apply(documents(
		strings.Replace(expose("fn", "macvlan", true, links...), `value: "64"`, `value: "200"`, 1),
		topology("one", strings.Split(steps.String(), "\n- name: uplink1")[0]), topology("four", steps.String()),
		claimTemplate("one", "one-uplink0"), claimTemplate("four", classes...)))
	e.offer(links...)
	before := e.state()
	first := e.use()
	start := time.Now()
	var names []string
	for i := range *crowd {
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	e.all(*crowd, func(i int) error { return e.createPod(names[i], "one") })
	if err := e.createPod("four", "four"); err != nil {
		t.Fatal(err)
	}
	e.ready(append(names, "four")...)
	t.Logf("%d pods with one interface and one with four were Ready after %s; %s", *crowd, since(start), e.use())
	for i := range links {
		if shown := e.inPod("four", "ip", "-4", "-o", "addr", "show", "dev",
			fmt.Sprintf("net%d", i+1)); !strings.Contains(shown, fmt.Sprintf("inet 10.143.%d.", i)) {
			t.Errorf("net%d has an unexpected address:\n%s", i+1, shown)
		}
	}
	if leases := e.filesOnNode("/var/lib/cni/networks/*.uplink*/10.143.*"); len(leases) != *crowd+len(links) {
		t.Errorf("want one address for each of %d interfaces, got %q", *crowd+len(links), leases)
	}
	start = time.Now()
	if err := e.client.CoreV1().Pods(e.namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	e.gone(append(names, "four")...)
	t.Logf("all pods were gone after %s", since(start))
	e.asItWas(before)
	e.eventually("the driver uses no more than before", func(context.Context) (bool, error) {
		now := e.use()
		return now.goroutines <= first.goroutines+5 &&
			now.files <= first.files+5, fmt.Errorf("the usage is %s, before: %s", now, first)
	})
	last := e.use()
	t.Logf("at the end: %s; before: %s", last, first)
	if last.peak > memoryLimit {
		t.Errorf("peak memory of the driver = %d MiB, want at most %d", last.peak, memoryLimit)
	}
}

// use is the resource usage of the driver process.
type use struct {
	memory, peak      int // in MiB, including the pages of the program
	goroutines, files int
}

func (u use) String() string {
	return fmt.Sprintf("memory %d MiB, at its peak %d MiB, %d goroutines, %d open files", u.memory, u.peak,
		u.goroutines, u.files)
}

func (e *env) use() use {
	e.Helper()
	driver, err := process.One(e.processesOf(stack.Driver)...)
	if err != nil {
		e.Fatalf("cannot find the driver's process: %v", err)
	}
	status, err := process.Status(driver)
	if err != nil {
		e.Fatal(err)
	}
	now := use{memory: int(status.VmRSS >> 20), peak: int(status.VmHWM >> 20)}
	e.eventually("the driver has metrics", func(ctx context.Context) (bool, error) {
		metrics, err := e.metrics(ctx)
		now.goroutines, now.files = int(metrics["go_goroutines"]), int(metrics["process_open_fds"])
		return now.goroutines > 0 && now.files > 0, err
	})
	return now
}

// createPod creates a pod through the client library, which is faster than kubectl.
func (e *env) createPod(name, template string) error {
	wanted := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(pod(name, template)), wanted); err != nil {
		return err
	}
	_, err := e.client.CoreV1().Pods(e.namespace).Create(context.Background(), wanted, metav1.CreateOptions{})
	return err
}
