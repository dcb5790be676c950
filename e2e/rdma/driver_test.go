package rdma

import (
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// driver is the part of the project's driver that runs chains.
type driver struct {
	*bench
	*testbench.Driver
}

func newDriver(b *bench) *driver {
	b.Helper()
	return &driver{b, b.NewDriver(executor.Options{})}
}

// tenant is a pod that a device can be attached to.
type tenant struct{ *place }

// tenant creates a pod and prepares a claim for it. The first step in the topology is allocated the given link on the
// machine.
func (d *driver) tenant(name, steps, link string, exclusively bool) *tenant {
	d.Helper()
	pod := d.Pod(name, steps, cnichain.Device{IfName: link, Exclusive: exclusively})
	pod.WithLink("lo", netlink.LinkSetUp)
	return &tenant{&place{d.bench, pod}}
}

// nodes returns the device nodes that are exposed to containers in the pod.
func (t *tenant) nodes() []string { return t.Attachment.Steps[0].DeviceNodes }

// end returns the tenant as one end of a connection.
func (t *tenant) end(device, address string) *end {
	return &end{place: t.place, device: device, address: address}
}

// rename renames an RDMA device in a namespace.
func (p *place) rename(device, name string) {
	p.Helper()
	p.Inside(func() error {
		link, err := netlink.RdmaLinkByName(device)
		if err != nil {
			return err
		}
		return netlink.RdmaLinkSetName(link, name)
	})
}
