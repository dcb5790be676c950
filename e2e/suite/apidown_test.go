package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// outage is the minimum time that the API server is down.
const outage = time.Minute

// While the API server is down, pods with prepared claims are still attached, and detachments that are in progress
// still complete.
func TestAPIServerDown(t *testing.T) {
	e := newEnv(t, "outage")
	coming, going := e.stage("oa", 136, 0), e.stage("oc", 138, 0)
	before := e.state()
	e.observe()
	going.pod("going")
	e.ready("going")
	detached := going.set("DEL")
	e.deleting("going")
	going.pluginRuns()
	resume := coming.preparedOnly("coming") // so that RunPodSandbox is called while the API server is down
	restore := e.stopAPIServer()
	start := time.Now()
	resume()
	e.moment("the pod that was prepared runs", func() bool { return len(e.containersOf("coming")) == 1 })
	t.Logf("without the API server, the pod was attached and its container started after %s", since(start))
	detached()
	e.moment("the device of the pod that was being deleted is restored", func() bool {
		links, err := e.nodeLinks()
		return err == nil && strings.Contains(strings.Join(links, "\n"), "ocw ")
	})
	time.Sleep(time.Until(start.Add(outage))) // this wait is the subject of the test
	restore()

	start = time.Now()
	e.ready("coming")
	e.gone("going")
	t.Logf("the API server had the new state after %s", since(start))
	e.catchUp()
	e.neverStartedEarly()
	e.deleting("coming")
	e.gone("coming")
	e.asItWas(before)
}

// catchUp forces all components to reconnect to the API server. After an outage, clients wait for up to a minute before
// they retry. Restarted components do not wait, so other tests do not have to wait either.
func (e *env) catchUp() {
	e.Helper()
	for _, component := range []lab.Component{lab.ControllerManager, lab.Scheduler, lab.Kubelet} {
		e.restart(component)
	}
	e.signal(stack.Driver, syscall.SIGKILL)
	e.driverReady()
}

// A node reboot kills all processes, destroys all network namespaces and clears memory, but leaves the disk unchanged.
// Pods get their interfaces back, and no stale interfaces remain.
func TestReboot(t *testing.T) {
	e := newEnv(t, "reboot")
	s := e.stage("rb", 139, 0)
	e.observe()
	s.pod("p")
	e.ready("p")
	start := time.Now()
	e.reboot(s.links, s.unlink)
	t.Logf("the runtime and the kubelet were running again after %s", since(start))
	e.eventually("the pod's container was started again",
		func(context.Context) (bool, error) { return len(e.containersOf("p")) == 1, nil })
	e.driverReady()
	e.ready("p")
	t.Logf("the pod was Ready after %s", since(start))
	for _, name := range []string{whole, second} {
		if shown := e.inPod("p", "ip", "-4", "-o", "addr", "show", "dev", name); strings.Count(shown, "inet ") != 1 {
			t.Errorf("%s does not have exactly one IPv4 address:\n%s", name, shown)
		}
	}
	e.deleting("p")
	s.goes("p")
}

// reboot terminates everything that does not survive a reboot, and starts the node again. The kernel's boot ID does not
// change, so the only difference from the journal is that the namespaces are gone. unplug removes the hardware and plug
// recreates it, because a real machine would detect its hardware again.
func (e *env) reboot(plug, unplug func()) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, component := range []lab.Component{lab.Kubelet, e.cluster.RuntimeComponent()} {
		if err := e.cluster.Stop(ctx, component, syscall.SIGKILL); err != nil {
			e.Fatal(err)
		}
	}
	if _, err := e.cluster.Exec(ctx, "sh", "-c", `
		for cgroup in /proc/[0-9]*/cgroup; do
			pid=${cgroup#/proc/}; pid=${pid%/cgroup}
			case "$(readlink /proc/$pid/exe) $(cat $cgroup 2>/dev/null)" in
			*containerd-shim*|*/conmon*|*/kubepods/*) kill -9 $pid;;
			esac
		done 2>/dev/null
		for namespace in /run/netns/*; do umount -l $namespace; done
		for bundle in $(awk '$2 ~ "^/run/containe(rd|rs)/|^/var/lib/containers/storage/" {print $2}' /proc/mounts); do
			umount -l $bundle
		done
		rm -rf /run/netns/* /run/cdi/* /run/cni/* /run/cni-ipam /run/containerd /run/containers /run/crio
		root=$(awk '/^cgroupRoot/ {print $2}' "$1")
		find /sys/fs/cgroup -depth -type d -path "*$root/kubepods/*" -exec rmdir {} + 2>/dev/null
		true`, "sh", filepath.Join(e.cluster.RunDir(), "kubelet.yaml")); err != nil {
		e.Fatal(err)
	}
	unplug()
	plug()
	for _, component := range []lab.Component{e.cluster.RuntimeComponent(), lab.Kubelet} {
		if err := e.cluster.Start(ctx, component); err != nil {
			e.Fatal(err)
		}
	}
}

// A pod that shares its claim with another pod is detached even if the runtime never reported that the pod terminated
// and the claim is still in use. The other pod keeps its interface.
func TestSharedClaimWhoseUserIsLost(t *testing.T) {
	e := newEnv(t, "lost")
	e.offerMacvlan("lo0", "10.140.0.0/24")
	before := e.state()
	e.observe()
	e.create(sharedClaim("both", "lo0-uplink"))
	e.create(documents(watchedPod("a", "resourceClaimName: both", "net1"),
		watchedPod("b", "resourceClaimName: both", "net1")))
	e.ready("a", "b")
	e.restart(e.cluster.RuntimeComponent())
	e.deleting("a")
	e.gone("a")
	start := time.Now()
	e.eventually("only one pod is attached", func(ctx context.Context) (bool, error) {
		sandboxes, err := e.records(ctx, "sandboxes")
		return len(sandboxes) == 1, errors.Join(err, fmt.Errorf("sandboxes are %s", sandboxes))
	})
	t.Logf("the lost pod was detached after %s", since(start))
	e.neverStartedEarly()
	e.deleting("b")
	e.gone("b")
	if output, err := e.kubectl("", "delete", "resourceclaim", "both"); err != nil {
		t.Fatal(err, output)
	}
	e.asItWas(before)
}

// sharedClaim returns a claim that pods reference by name.
func sharedClaim(name string, classes ...string) string {
	requests := make([]string, len(classes))
	for i, class := range classes {
		requests[i] = fmt.Sprintf("{name: r%d, exactly: {deviceClassName: %s}}", i, class)
	}
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [%s]}}
`, name, strings.Join(requests, ", "))
}

// all runs n concurrent calls of do.
func (e *env) all(n int, do func(int) error) {
	e.Helper()
	var group errgroup.Group
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		e.Fatal(err)
	}
}
