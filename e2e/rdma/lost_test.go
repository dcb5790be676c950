package rdma

import (
	"context"
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// What is done to a pod's namespace while it runs, by the kernel or by an application with all rights, does not cost
// the machine its link or its RDMA device: both come back under their names, and the next pod has them.
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
		{"destroyed", func(pod string) { c.DestroyNamespace(pod) }}, // the kernel calls the device ibdevN
		{"renamed", func(pod string) {
			c.inside(pod).rename("rxe0", "mine")
			c.inside(pod).renameLink("net1", "mine0")
		}},
		{"down", func(pod string) {
			c.inside(pod).inside(func() error {
				found, err := netlink.LinkByName("net1")
				return errors.Join(err, netlink.LinkSetDown(found))
			})
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
	c.until("driver that holds nothing", func(ctx context.Context) error { return kubenode.Forgotten(ctx) })
}

// renameLink renames a link of a namespace, which must be down for that.
func (p *place) renameLink(link, name string) {
	p.Helper()
	p.inside(func() error {
		found, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(found); err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetName(found, name), netlink.LinkSetUp(found))
	})
}
