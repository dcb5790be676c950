package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slowMacvlan is a plugin that the driver has never heard of: its schema is an object in the cluster.
const slowMacvlan = `
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: slow-macvlan}
spec:
  cniType: slow-macvlan
  deviceParameters: [{parameter: master, attribute: ifName}]
`

// slow offers a link for chains that take some seconds.
func (e *env) slow(link, subnet string, seconds int) {
	e.Helper()
	e.veth(link)
	e.apply(slowMacvlan)
	e.apply(documents(expose(link, "slow-macvlan", true, link), topology(link, fmt.Sprintf(`
- name: uplink
  type: slow-macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {seconds: %d, ipam: {type: host-local, subnet: %s}}`, link, seconds, subnet)), claimTemplate(link, link+"-uplink")))
	e.offer(link)
}

// A chain that takes longer than the runtime waits: the containers wait for it, other pods don't.
func TestChainLongerThanTheRuntimeWaits(t *testing.T) {
	e := newEnv(t, "slow")
	e.slow("sl0", "10.131.0.0/24", 4)
	e.apply(strings.Replace(pod("p", "sl0"), `command: [sleep, "86400"]`, `command: [sh, -c, "ip -o link show net1 >/seen && sleep 86400"]`, 1))
	e.eventually("the plugin runs", func(context.Context) (bool, error) {
		pids := e.processes("slow-macvlan")
		return len(pids) > 0, nil
	})
	start := time.Now()
	e.apply(pod("other", ""))
	e.ready("other")
	if len(e.processes("slow-macvlan")) > 0 {
		t.Logf("another pod was Ready after %s, while the chain was running", time.Since(start).Round(time.Millisecond))
	}
	e.ready("p")
	if seen := e.in("p", "cat", "/seen"); !strings.Contains(seen, "net1") {
		t.Errorf("the container saw %q when it started", seen)
	}
}

// A driver that is killed in the middle of a chain leaves nothing behind, and the next one attaches the pod.
func TestDriverKilledInTheMiddleOfAChain(t *testing.T) {
	e := newEnv(t, "killed")
	e.slow("ki0", "10.132.0.0/24", 3)
	e.apply(pod("p", "ki0"))
	var plugin []int
	e.eventually("the plugin runs", func(context.Context) (bool, error) {
		plugin = e.processes("slow-macvlan")
		return len(plugin) > 0, nil
	})
	for _, pid := range e.processes("dra-network-driver") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	e.ready("p")
	if shown := e.in("p", "ip", "-o", "-4", "addr", "show", "dev", "net1"); strings.Count(shown, "inet 10.132.0.") != 1 {
		t.Errorf("net1 is\n%s", shown)
	}
	leases, err := filepath.Glob(e.fileOnNode("/var/lib/cni/networks/ki0.uplink/10.*"))
	if err != nil || len(leases) != 1 {
		t.Errorf("leases are %v, %v", leases, err)
	}
	e.eventually("the driver is back", func(ctx context.Context) (bool, error) {
		_, err := e.cluster.Exec(ctx, "kubectl", "-n", "dra-network", "rollout", "status", "daemonset/dra-network-driver", "--timeout=5s")
		return err == nil, err
	})
	restarts, err := e.client.CoreV1().Pods("dra-network").List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=dra-network-driver"})
	if err != nil || len(restarts.Items) != 1 || restarts.Items[0].Status.ContainerStatuses[0].RestartCount == 0 {
		t.Errorf("the driver was not restarted: %v", err)
	}
}

// processes returns the processes on the node that run a program, as the host numbers them.
func (e *env) processes(program string) []int {
	e.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		e.Fatal(err)
	}
	own, err := os.Readlink(e.fileOnNode("/proc/1/ns/net"))
	if err != nil {
		e.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || filepath.Base(path) != program {
			continue
		}
		dir := filepath.Dir(link)
		if namespace, err := os.Readlink(dir + "/ns/net"); err != nil || namespace != own {
			continue // another cluster's
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
