package kerneltest

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

func cidr(text string) *net.IPNet {
	ip, network, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	network.IP = ip
	return network
}

// inUse gives a link of the host what a node may have on it, and returns it as a claim's device whose policy allows
// that.
func (l *realLab) inUse(name string) cnichain.RootDevice {
	l.Helper()
	l.uplink(name)
	l.onHost(name, func(link netlink.Link) error {
		index := link.Attrs().Index
		for _, address := range []netlink.Addr{{IPNet: cidr("192.168.50.2/24")},
			{IPNet: cidr("192.168.51.2/24"), Label: name + ":1"}, {IPNet: cidr("fd00:50::2/64"),
				Flags: unix.IFA_F_NODAD}} {
			l.must(netlink.AddrAdd(link, &address))
		}
		for _, route := range []netlink.Route{
			{LinkIndex: index, Dst: cidr("10.200.0.0/16"), Gw: net.ParseIP("192.168.50.1")},
			{LinkIndex: index, Dst: cidr("10.201.0.0/16"), Gw: net.ParseIP("192.168.50.1"), Table: 100, Priority: 7,
				Src: net.ParseIP("192.168.50.2")},
			{LinkIndex: index, Gw: net.ParseIP("192.168.50.1"), Table: 100},
			{LinkIndex: index, Dst: cidr("10.202.0.0/16"), Scope: netlink.SCOPE_LINK, MTU: 1400},
			{LinkIndex: index, Dst: cidr("fd00:60::/64"), Gw: net.ParseIP("fd00:50::1"), Table: 100},
		} {
			l.must(netlink.RouteAdd(&route))
		}
		rule := netlink.NewRule()
		rule.IifName, rule.Table, rule.Priority = name, 100, 1000
		l.must(netlink.RuleAdd(rule))
		l.Cleanup(func() { _ = netlink.RuleDel(rule) })
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP("192.168.50.9"), HardwareAddr: sharedMAC()})
	})
	l.reachable()
	device, err := l.kernel().Snapshot(cnichain.Device{
		Pool: "node", Name: name, Request: "nic", IfName: name, CNIs: []string{"host-device"}, Exclusive: true,
		AllowInUse: true,
	})
	l.must(err)
	return cnichain.RootDevice{Step: "link", Device: device}
}

// reachable waits until the kernel has its own route to the IPv6 address, which it makes in the background.
func (l *realLab) reachable() {
	l.Helper()
	l.await("the kernel has a route to its address", func() bool {
		routes, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Table: unix.RT_TABLE_LOCAL},
			netlink.RT_FILTER_TABLE)
		l.must(err)
		return slices.ContainsFunc(routes, func(route netlink.Route) bool {
			return route.Dst != nil && route.Dst.String() == "fd00:50::2/128"
		})
	})
}

// neighbours are the permanent ones of a link.
func (l *realLab) neighbours(name string) []string {
	l.Helper()
	var lines []string
	l.onHost(name, func(link netlink.Link) error {
		list, err := netlink.NeighList(link.Attrs().Index, unix.AF_INET)
		for _, n := range list {
			if n.State&netlink.NUD_PERMANENT != 0 {
				lines = append(lines, n.IP.String()+" "+n.HardwareAddr.String())
			}
		}
		return err
	})
	return lines
}

// A link with addresses, routes, rules and neighbours of the node is busy. If its policy allows that it is taken, it
// has all of them again after the pod, however the pod ended.
func TestAddressesAndRoutesAreRestored(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, ends := range map[string]func(*realPod){
		"at DEL":              func(*realPod) {},
		"by a new driver":     func(p *realPod) { restarted(p) },
		"application renamed": func(p *realPod) { renamed(p) },
		"application takes names": func(p *realPod) {
			p.link("net1", func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetAlias(link, "lo") })
			_, _ = p.tryDel(), p.tryDel() // the driver does it itself
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			device := l.inUse("up0")
			a := l.pod("a", l.plan("first", onlyHostDevice, device))
			before, neighbours := l.state(), l.neighbours("up0")
			a.add()
			ends(a)
			a.del()
			l.reachable()
			l.expect(before)
			if current := l.neighbours("up0"); !slices.Equal(current, neighbours) || len(current) == 0 {
				t.Errorf("neighbours are %v, were %v", current, neighbours)
			}
			l.empty()
		})
	}
}

// What can't be given back is told, and the device is not said to have returned.
func TestRouteThatCannotBeRestored(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	device := l.inUse("up0")
	l.uplink("other0")
	a := l.pod("a", l.plan("first", onlyHostDevice, device))
	before := l.state()
	a.add()
	for i := range a.attachment.Steps[0].Step.Device.Network.Routes {
		if route := &a.attachment.Steps[0].Step.Device.Network.Routes[i]; route.Destination == "10.200.0.0/16" {
			route.Gateway = "172.16.0.1"
		}
	}
	for range 3 {
		l.says(a.tryDel(), "cannot add route to 10.200.0.0/16 via 172.16.0.1 in table 254 to up0",
			"the node lacks route to 10.200.0.0/16")
	}
	for i := range a.attachment.Steps[0].Step.Device.Network.Routes {
		if route := &a.attachment.Steps[0].Step.Device.Network.Routes[i]; route.Destination == "10.200.0.0/16" {
			route.Gateway = "192.168.50.1"
		}
	}
	a.del()
	l.reachable()
	l.expect(before)
}
