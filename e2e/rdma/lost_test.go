package rdma

import (
	"context"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// If the kernel or a privileged application changes a pod's namespace while the pod is running, the link and the RDMA
// device are not lost: both return to the machine under their original names, and the next pod can use them.
func TestClusterPodsHarmed(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	link := c.rdmaFunctions(1)[0]
	c.expose()
	c.topology("harmed", "netdev", ofFunctions, "")
	for _, test := range []struct {
		name string
		harm func(pod string)
	}{
		{"destroyed", func(pod string) { c.DestroyNamespace(pod) }}, // the kernel renames the device to ibdevN
		{"renamed", func(pod string) {
			c.inside(pod).rename("rxe0", "mine")
			c.inside(pod).renameLink("net1", "mine0")
		}},
		{"down", func(pod string) {
			c.inside(pod).WithLink("net1", netlink.LinkSetDown)
		}},
	} {
		c.podObject(test.name, "harmed", checked)
		c.Ready(test.name)
		c.inside(test.name).sees("rxe0")
		test.harm(test.name)
		c.goes(test.name)
		c.onMachine("rxe0")
		c.hasLinks(link)
		c.until("driver that holds nothing", kubenode.Forgotten)
	}
	c.podObject("last", "harmed", checked)
	c.Ready("last")
	c.inside("last").sees("rxe0")
	c.goes("last")
	c.onMachine("rxe0")
	c.until("driver that holds nothing", kubenode.Forgotten)
}

// If another device on the machine uses the name of a pod's RDMA device when the pod's namespace is destroyed, the
// pod's device is quarantined for this reason. Its function is not allocated to any pod until the name is free and the
// device has been renamed.
func TestClusterRDMANameTaken(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	link := c.rdmaFunctions(1)[0]
	c.expose()
	c.topology("taken", "netdev", ofFunctions, "")
	c.podObject("first", "taken", checked)
	c.Ready("first")
	c.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "other"}})
	c.machine().addDevice("rxe0", "other")
	c.DestroyNamespace("first") // the kernel renames the device to ibdevN
	c.goes("first")
	c.quarantined(1)
	leftovers, err := kubenode.Query(context.Background(), "leftovers")
	if reason := "rename the RDMA device that has it"; err != nil || !strings.Contains(leftovers, reason) {
		t.Errorf("leftovers = %s (%v), want a quarantined device with reason %q", leftovers, err, reason)
	}
	c.podObject("second", "taken", checked)
	c.Waits("second")
	c.removeDevices("rxe0")
	c.release()
	c.Ready("second")
	c.inside("second").sees("rxe0")
	c.goes("second")
	c.onMachine("rxe0")
	c.quarantined(0)
	c.hasLinks(link)
}

// release makes the driver immediately retry cleaning up its leftovers.
func (c *cluster) release() {
	c.Helper()
	c.Exec("netdra", "release", "--all")
}

// renameLink renames a link in a namespace. It sets the link down first, as the kernel requires.
func (p *place) renameLink(link, name string) {
	p.Helper()
	p.WithLink(link, netlink.LinkSetDown,
		func(found netlink.Link) error { return netlink.LinkSetName(found, name) }, netlink.LinkSetUp)
}
