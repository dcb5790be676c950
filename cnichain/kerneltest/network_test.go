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

// inUse adds every kind of configuration found on nodes to a link on the host, and returns the link as a claim's device
// with a policy that allows links in use.
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

// reachable waits until the kernel has created its own route to the IPv6 address, which it does in the background.
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

// neighbours returns a link's permanent neighbors.
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

// A link with addresses, routes, rules and neighbors that belong to the node counts as in use. If a policy exposes it
// anyway, all of these are restored after the pod terminates, however it terminates.
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
			_, _ = p.tryDel(), p.tryDel() // after these failures, the driver itself returns the device
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
				t.Errorf("neighbors = %v, want %v", current, neighbours)
			}
			l.empty()
		})
	}
}

// After the pod terminates, a leased host address is restored with its remaining lifetime. It is not restored if it
// expired while the pod was running.
func TestLentAddressesEnd(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.onHost("up0", func(link netlink.Link) error {
		for address, seconds := range map[string]int{"192.168.60.2/24": 3600, "192.168.61.2/24": 90000} {
			l.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: cidr(address), ValidLft: seconds, PreferedLft: seconds}))
		}
		for network, gateway := range map[string]string{"10.60.0.0/16": "192.168.60.1", "10.61.0.0/16": "192.168.61.1"} {
			l.must(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: cidr(network),
				Gw: net.ParseIP(gateway)}))
		}
		return nil
	})
	device, err := l.kernel().Snapshot(cnichain.Device{Pool: "node", Name: "up0", Request: "nic", IfName: "up0",
		CNIs: []string{"host-device"}, Exclusive: true, AllowInUse: true})
	l.must(err)
	a := l.pod("a", l.plan("first", onlyHostDevice, cnichain.RootDevice{Step: "link", Device: device}))
	a.add()
	const ran = 7200
	taken := &a.attachment.Steps[0].Step.Device.Network.TakenAt
	if *taken -= ran; *taken == 0 { // 0 would mean unknown; a negative time is valid
		*taken--
	}
	a.del()
	l.onHost("up0", func(link netlink.Link) error {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		l.must(err)
		if len(addresses) != 1 || addresses[0].IP.String() != "192.168.61.2" || addresses[0].ValidLft > 90000-ran+60 {
			t.Errorf("wrong addresses or lifetimes: %v", addresses)
		}
		routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{LinkIndex: link.Attrs().Index,
			Protocol: unix.RTPROT_BOOT}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
		if len(routes) != 1 || routes[0].Dst.String() != "10.61.0.0/16" {
			t.Errorf("routes = %v, want only 10.61.0.0/16", routes)
		}
		return err
	})
}

// If a route cannot be restored, this is reported, and the device is not considered returned.
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
