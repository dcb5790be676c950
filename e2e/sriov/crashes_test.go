package sriov

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// TestClusterCrashes checks that virtual functions are restored after any crash of the driver, regardless of how pods
// terminate.
func TestClusterCrashes(t *testing.T) {
	c := newCluster(t, 2)
	c.Apply(c.named(policies))
	c.part("away", (*cluster).losesPodsWhileDriverIsAway)
	c.part("killed", (*cluster).killsDriverInTheMiddle)
	c.part("destroyed", (*cluster).destroysNamespaces)
	c.part("binding", (*cluster).killsDriverWhileItBinds)
	c.part("dirty", (*cluster).getsDirtyFunctions)
	c.part("quarantine", (*cluster).quarantinesFunctions)
}

// oneFunction creates a topology with a virtual function on the first NIC.
func (c *cluster) oneFunction(name string) {
	c.Helper()
	c.topology(name, c.named(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}
  config: {vlan: 77, trust: "on", spoofchk: "off", max_tx_rate: 100}`), "nic")
}

// One pod is deleted and another is created while the driver is not running.
func (c *cluster) losesPodsWhileDriverIsAway() {
	c.oneFunction("away")
	c.create("away", "early")
	c.Ready("early")
	c.SetDriver(`{"no":"node"}`)
	c.Cleanup(func() { c.SetDriver("null") })
	c.DriverGone()
	process := c.process("early")
	c.Remove("early")
	c.Until("end of the pod's process", func(context.Context) error {
		if _, err := os.Stat(process); err == nil {
			return kubenode.ErrStill
		}
		return nil
	})
	c.create("away", "late")
	c.SetDriver("null")
	c.Gone("early")
	c.Ready("late")
}

// The driver is killed as soon as a function has left the host, and again as soon as the function has returned.
func (c *cluster) killsDriverInTheMiddle() {
	c.oneFunction("killed")
	c.create("killed", "pod")
	c.soon("function that has left", func() bool { return c.away() > 0 })
	c.KillDriver()
	c.Ready("pod")
	c.Remove("pod")
	c.soon("function that has come back", func() bool { return c.away() == 0 })
	c.KillDriver()
	c.Gone("pod")
}

// away returns the number of virtual functions on the first NIC that have no link on the host.
func (c *cluster) away() (away int) {
	c.Helper()
	for i := range 2 {
		if _, err := testbench.FindLink(c.VF(pf0, i)); err != nil {
			away++
		}
	}
	return away
}

// All references to a pod's namespace are removed, so that the kernel destroys the namespace and returns the function
// to the host. The pod gets a new sandbox, to which its function is attached again.
func (c *cluster) destroysNamespaces() {
	c.oneFunction("destroyed")
	c.create("destroyed", "pod")
	c.Ready("pod")
	process := c.process("pod")
	c.DestroyNamespace("pod")
	c.Until("a new sandbox of the pod, with its function", func(context.Context) error {
		fresh, err := c.Process("pod")
		if err != nil || fresh == process {
			return errors.Join(kubenode.ErrStill, err)
		}
		return c.PodAt(filepath.Join(fresh, "ns/net")).Enter(func() error {
			_, err := netlink.LinkByName("net1")
			return err
		})
	})
	c.Ready("pod")
}

// A privileged application and an administrator change all properties of the pod's virtual function.
func (c *cluster) getsDirtyFunctions() {
	c.oneFunction("dirty")
	c.create("dirty", "pod")
	c.Ready("pod")
	index := c.index("pod", 0)
	before := c.settings(pf0, index)
	c.soil(c.inside("pod"), pf0, index)
	if after := c.settings(pf0, index); after == before {
		c.Errorf("the function is unchanged: %s", after)
	}
}

// A virtual function whose name cannot be restored does not prevent its pod from terminating. The function is not
// allocated again until its name is restored.
func (c *cluster) quarantinesFunctions() {
	c.oneFunction("stuck")
	names := []string{c.LinkOf(c.VF(pf0, 0)).Attrs().Name, c.LinkOf(c.VF(pf0, 1)).Attrs().Name}
	c.create("stuck", "pod")
	c.Ready("pod")
	device, index := c.devices("pod")[0], c.index("pod", 0)
	impostor := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: names[index]}}
	c.must(netlink.LinkAdd(impostor))
	c.Remove("pod")
	c.Gone("pod")
	c.Until("taint of the function", func(ctx context.Context) error {
		devices, err := c.Offered(ctx)
		if err == nil && devices[device] != "quarantined" {
			err = fmt.Errorf("the offered devices are %v", devices)
		}
		return err
	})
	c.create("stuck", "one")
	c.Ready("one")
	c.create("stuck", "two")
	c.Waits("two")
	c.must(netlink.LinkDel(impostor))
	c.Exec("netdra", "release", "--all")
	c.Ready("two")
}

func (c *cluster) glob(pattern string) []string {
	c.Helper()
	paths, err := filepath.Glob(pattern)
	c.must(err)
	return paths
}
