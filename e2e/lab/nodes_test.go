package lab_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

const bootFile = "/proc/sys/kernel/random/boot_id"

// TestNodes starts a cluster with two nodes, disconnects them, and switches one of them off and on.
func TestNodes(t *testing.T) {
	skipUnlessPossible(t)
	ctx, mounts, links := t.Context(), hostMounts(t), hostState(t)
	c, err := lab.Up(ctx, lab.Options{Name: "labtest-nodes", NodeName: "worker", Nodes: 2, Links: 3,
		Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // does nothing after a successful test
		if err := c.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	pid, client := initPID(t, c), newClient(t, c)
	first, second := node(t, c, "worker-1"), node(t, c, "2")
	pods(ctx, t, client, first, second)
	t.Run("cables", func(t *testing.T) { checkCables(t, first, second) })
	t.Run("reboot", func(t *testing.T) { checkReboot(ctx, t, c, client) })
	t.Run("off", func(t *testing.T) { checkOff(ctx, t, client, second) })
	if _, err := c.Node("3"); err == nil {
		t.Error("opening a third node succeeded, want an error")
	}
	if err := c.Down(ctx); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, c, pid, mounts, links)
}

func node(t *testing.T, c *lab.Cluster, name string) *lab.Node {
	t.Helper()
	n, err := c.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pods runs one pod on each node, named after the node.
func pods(ctx context.Context, t *testing.T, client kubernetes.Interface, nodes ...*lab.Node) {
	t.Helper()
	for _, n := range nodes {
		p := pod(n.NodeName())
		p.Spec.NodeName = n.NodeName()
		if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		waitReady(ctx, t, client, n.NodeName())
	}
}

func output(t *testing.T, m interface {
	Exec(ctx context.Context, args ...string) ([]byte, error)
}, args ...string) string {
	t.Helper()
	out, err := m.Exec(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// checkCables checks that addresses respond only while their cables are connected.
func checkCables(t *testing.T, first, second *lab.Node) {
	output(t, first, "ip", "address", "add", "192.0.2.1/24", "dev", "eth1")
	output(t, second, "ip", "address", "add", "192.0.2.2/24", "dev", "eth3")
	addresses := map[lab.Segment]string{lab.Wire: "192.0.2.2", lab.API: second.Address()}
	check := func(unplugged lab.Segment) {
		t.Helper()
		for segment, address := range addresses {
			tries := 1
			if segment != unplugged {
				tries = 10 // a busy machine may drop a packet
			}
			out, err := ping(t, first, address, tries)
			if (err == nil) != (segment != unplugged) {
				t.Errorf("with %q disconnected, pinging %s returned %v\n%s", unplugged, address, err, out)
			}
			connected, err := second.Connected(segment)
			if err != nil || connected != (segment != unplugged) {
				t.Errorf("with %q disconnected, %s was reported as connected: %v (%v)", unplugged, segment, connected,
					err)
			}
		}
	}
	check("")
	for _, segment := range lab.Segments() {
		if err := second.Disconnect(segment); err != nil {
			t.Fatal(err)
		}
		check(segment)
		if err := second.Connect(segment); err != nil {
			t.Fatal(err)
		}
	}
	check("")
}

// ping sends echo requests until one is answered, up to the given number of tries.
func ping(t *testing.T, sender *lab.Node, address string, tries int) (out []byte, err error) {
	for range tries {
		if out, err = sender.Exec(t.Context(), "busybox", "ping", "-c", "1", "-W", "1", address); err == nil {
			break
		}
	}
	return out, err
}

// checkReboot checks that a reboot clears only the second node's memory, and does not affect the first node.
func checkReboot(ctx context.Context, t *testing.T, c *lab.Cluster, client kubernetes.Interface) {
	first, second := node(t, c, "1"), node(t, c, "2")
	for _, path := range []string{"/run/mark", "/var/lib/mark", "/var/lib/cni/mark", "/etc/mark", "/opt/cni/bin/mark"} {
		output(t, second, "touch", path)
	}
	indexes := func() []string {
		return strings.Fields(output(t, second, "sh", "-c", "cat /sys/class/net/eth*/ifindex"))
	}
	boots := func() [3]string {
		object, err := client.CoreV1().Nodes().Get(ctx, second.NodeName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return [3]string{
			output(t, second, "cat", bootFile), output(t, c, "kubectl", "exec", second.NodeName(), "--",
				"cat", bootFile),
			object.Status.NodeInfo.BootID,
		}
	}
	before, linksBefore, firstBefore := boots(), indexes(), output(t, first, "pgrep", "-n", "containerd")
	if err := second.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	waitRestarted(ctx, t, client, second.NodeName())
	after, linksAfter := boots(), indexes()
	kernel, err := os.ReadFile(bootFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range [][3]string{before, after} {
		if all[1] != all[0] || all[2] != all[0] || all[0] == strings.TrimSpace(string(kernel)) {
			t.Errorf("boot IDs of node, container and API server = %q, want one that is not the machine's", all)
		}
	}
	if before == after {
		t.Errorf("the boot ID did not change: %q", after)
	}
	for i := range linksBefore {
		if slices.Contains(linksBefore, linksAfter[i]) {
			t.Errorf("links reused indexes: %q before the boot, now %q", linksBefore, linksAfter)
		}
	}
	if slices.IsSorted(linksBefore) == slices.IsSorted(linksAfter) {
		t.Errorf("the order of the links did not change: indexes %q and %q", linksBefore, linksAfter)
	}
	if left := output(t, second, "sh", "-c",
		"ls -d /run/mark /var/lib/mark /var/lib/cni/mark /etc/mark /opt/cni/bin/mark || true"); left !=
		"/etc/mark\n/opt/cni/bin/mark\n/var/lib/cni/mark\n/var/lib/mark" {
		t.Errorf("files %q remain, want all except /run/mark", left)
	}
	if now := output(t, first, "pgrep", "-n", "containerd"); now != firstBefore {
		t.Errorf("containerd on the other node was process %s and is now %s", firstBefore, now)
	}
}

// waitRestarted waits until a pod's container has been restarted.
func waitRestarted(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	waitPod(ctx, t, client, name, "restarted", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 &&
			p.Status.ContainerStatuses[0].Ready
	})
}

// checkOff checks that a node that is switched off leaves nothing behind, that PowerOff can be called twice, and that
// the node can be started again, even by another process and after an interrupted boot.
func checkOff(ctx context.Context, t *testing.T, client kubernetes.Interface, n *lab.Node) {
	root, err := n.NodePath("/")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.PowerOff(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(root); err == nil || n.On() {
		t.Errorf("the node is still on, or %s still exists", root)
	}
	if _, err := n.Exec(ctx, "true"); err == nil {
		t.Error("a command ran on a node that is off")
	}
	if err := n.Disconnect(lab.Wire); err == nil {
		t.Error("disconnecting a node without cables returned no error")
	}
	opened, err := lab.Open(lab.Options{Name: "labtest-nodes"})
	if err != nil {
		t.Fatal(err)
	}
	again := node(t, opened, n.NodeName())
	breakBoot(ctx, t, again)
	for range 2 {
		if err := again.PowerOn(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !n.On() {
		t.Error("another handle reports that the node is off")
	}
	waitPod(ctx, t, client, n.NodeName(), "restarted again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 1
	})
}

// breakBoot interrupts a node's boot at the point where only its process 1 is running.
func breakBoot(ctx context.Context, t *testing.T, n *lab.Node) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			return n.On(), nil
		})
	}()
	if err := n.PowerOn(ctx); err == nil {
		t.Error("an interrupted boot was reported as complete")
	}
	if !n.On() {
		t.Error("the node is off, so the boot was interrupted too early for the test")
	}
}
