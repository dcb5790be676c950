package sriov

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestClusterCrashes sees that functions come home whatever happens to the driver and to pods.
func TestClusterCrashes(t *testing.T) {
	c := newCluster(t, 2)
	c.apply(c.named(policies))
	c.part("away", (*cluster).losesPodsWhileDriverIsAway)
	c.part("killed", (*cluster).killsDriverInTheMiddle)
	c.part("destroyed", (*cluster).destroysNamespaces)
	c.part("binding", (*cluster).killsDriverWhileItBinds)
	c.part("dirty", (*cluster).getsDirtyFunctions)
	c.part("quarantine", (*cluster).quarantinesFunctions)
}

// oneFunction makes a topology with a function of the first card.
func (c *cluster) oneFunction(name string) {
	c.Helper()
	c.topology(name, c.named(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}
  config: {vlan: 77, trust: "on", spoofchk: "off", max_tx_rate: 100}`), "nic")
}

// setDriver takes the driver from the node, or gives it back.
func (c *cluster) setDriver(selector string) {
	c.Helper()
	_, err := c.client.AppsV1().DaemonSets(driverNamespace).Patch(context.Background(), driverName,
		types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`), metav1.PatchOptions{})
	c.must(err)
}

// A pod is deleted, and another created, while there is no driver.
func (c *cluster) losesPodsWhileDriverIsAway() {
	c.oneFunction("away")
	c.create("away", "early")
	c.ready("early")
	c.setDriver(`{"no":"node"}`)
	c.Cleanup(func() { c.setDriver("null") })
	c.until("end of the driver", func(ctx context.Context) error {
		pods, err := c.client.CoreV1().Pods(driverNamespace).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + driverName})
		if err == nil && len(pods.Items) > 0 {
			err = errStill
		}
		return err
	})
	process := c.process("early")
	c.delete("early")
	c.until("end of the pod's process", func(context.Context) error {
		if _, err := os.Stat(process); err == nil {
			return errStill
		}
		return nil
	})
	c.create("away", "late")
	c.setDriver("null")
	c.gone("early")
	c.ready("late")
}

// The driver is killed as soon as a function has left the host, and when it has come back.
func (c *cluster) killsDriverInTheMiddle() {
	c.oneFunction("killed")
	c.create("killed", "pod")
	c.soon("function that has left", func() bool { return c.away() > 0 })
	c.killDriver()
	c.ready("pod")
	c.delete("pod")
	c.soon("function that has come back", func() bool { return c.away() == 0 })
	c.killDriver()
	c.gone("pod")
}

// away counts the functions of the first card that have no link on the host.
func (c *cluster) away() (away int) {
	c.Helper()
	for i := range 2 {
		if _, err := linkOf(c.vf(pf0, i)); err != nil {
			away++
		}
	}
	return away
}

// Everything that holds a pod's namespace is taken away, so that the kernel destroys it and puts the function on the
// host. The pod gets a new sandbox, with its function.
func (c *cluster) destroysNamespaces() {
	c.oneFunction("destroyed")
	c.create("destroyed", "pod")
	c.ready("pod")
	process := c.process("pod")
	namespace, err := os.Readlink(filepath.Join(process, "ns/net"))
	c.must(err)
	c.unpin(namespace)
	c.killAll(namespace)
	c.until("a new sandbox of the pod, with its function", func(context.Context) error {
		fresh, err := c.find("pod")
		if err != nil || fresh == process {
			return errors.Join(errStill, err)
		}
		return inThread(filepath.Join(fresh, "ns/net"), func() error {
			_, err := netlink.LinkByName("net1")
			return err
		})
	})
	c.ready("pod")
}

// unpin unmounts a network namespace wherever it is kept.
func (c *cluster) unpin(namespace string) {
	c.Helper()
	for _, path := range c.glob("/run/netns/*") {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err == nil && fmt.Sprintf("net:[%d]", stat.Ino) == namespace {
			c.must(unix.Unmount(path, unix.MNT_DETACH))
		}
	}
}

// killAll kills all that runs in a network namespace.
func (c *cluster) killAll(namespace string) {
	c.Helper()
	for _, dir := range c.glob("/proc/[0-9]*") {
		if current, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || current != namespace {
			continue
		}
		var pid int
		_, err := fmt.Sscan(filepath.Base(dir), &pid)
		c.must(err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.Fatal(err)
		}
	}
}

// An application with all rights changes everything about its function; so does an administrator.
func (c *cluster) getsDirtyFunctions() {
	c.oneFunction("dirty")
	c.create("dirty", "pod")
	c.ready("pod")
	index := c.index("pod", 0)
	before := c.settings(pf0, index)
	c.inside("pod").soil(pf0, index)
	if after := c.settings(pf0, index); after == before {
		c.Errorf("the function is as it was: %s", after)
	}
}

// A function that can't get back its name does not keep its pod from going. Nobody gets it until it could.
func (c *cluster) quarantinesFunctions() {
	c.oneFunction("stuck")
	names := []string{c.link(c.vf(pf0, 0)).Attrs().Name, c.link(c.vf(pf0, 1)).Attrs().Name}
	c.create("stuck", "pod")
	c.ready("pod")
	device, index := c.devices("pod")[0], c.index("pod", 0)
	impostor := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: names[index]}}
	c.must(netlink.LinkAdd(impostor))
	c.delete("pod")
	c.gone("pod")
	c.until("taint of the function", func(ctx context.Context) error {
		devices, err := c.offered(ctx)
		if err == nil && devices[device] != "quarantined" {
			err = fmt.Errorf("offered are %v", devices)
		}
		return err
	})
	c.create("stuck", "one")
	c.ready("one")
	c.create("stuck", "two")
	c.waits("two")
	c.must(netlink.LinkDel(impostor))
	c.command("netdra", "release", "--all")
	c.ready("two")
}

// find is process that can fail.
func (c *cluster) find(name string) (string, error) {
	for _, dir := range c.glob("/proc/[0-9]*") {
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && strings.Contains("\x00"+string(environment), "\x00"+observed+"="+c.namespace+"/"+name+"\x00") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("pod %s has no process: %w", name, fs.ErrNotExist)
}

func (c *cluster) glob(pattern string) []string {
	c.Helper()
	paths, err := filepath.Glob(pattern)
	c.must(err)
	return paths
}
