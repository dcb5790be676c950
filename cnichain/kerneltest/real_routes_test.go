package kerneltest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// clusterNetwork adds an address and a default route to the pod's eth0, as the cluster network's plugin does.
func (p *realPod) clusterNetwork() {
	p.Helper()
	p.link("eth0", func(handle *netlink.Handle, eth0 netlink.Link) error {
		address, err := netlink.ParseAddr("10.244.0.9/24")
		return errors.Join(err, handle.AddrAdd(eth0, address), handle.LinkSetUp(eth0),
			handle.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.IPv4(10, 244, 0, 1)}))
	})
}

// defaultRoutes returns the interfaces of the pod's default routes in order of preference.
func (p *realPod) defaultRoutes(family int) (names []string) {
	p.Helper()
	p.inside(func(handle *netlink.Handle) error {
		routes, err := handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		for i := range routes {
			if ones, _ := routes[i].Dst.Mask.Size(); ones == 0 {
				link, linkErr := handle.LinkByIndex(routes[i].LinkIndex)
				if linkErr != nil {
					return linkErr
				}
				names = append(names, link.Attrs().Name)
			}
		}
		return err
	})
	return names
}

// A step that replaces the pod's default route is rejected, whichever setting adds the new route. Afterwards, the
// default route goes through the cluster network.
func TestRealDefaultRoute(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.bridge("br0")
	for name, steps := range map[string]string{
		"host-local": `{mode: bridge, ipam: {type: host-local, dataDir: /var/lib/leases,
  ranges: [[{subnet: 10.1.0.0/24}]], routes: [{dst: 0.0.0.0/0}]}}`,
		"static": `{mode: bridge, ipam: {type: static, addresses: [{address: 10.1.0.5/24, gateway: 10.1.0.1}],
  routes: [{dst: 0.0.0.0/0}]}}`,
	} {
		p := l.pod(name, l.plan("first", "- {name: link, type: macvlan, config: "+steps+"}", l.shared("link", "up0")))
		p.clusterNetwork()
		p.refused("macvlan replaced the pod's IPv4 default route through eth0", "net1", "set defaultRoute: true")
		if got := p.defaultRoutes(unix.AF_INET); !slices.Equal(got, []string{"eth0"}) {
			t.Errorf("%s: after the refusal, default routes use %v, want eth0", name, got)
		}
	}
	p := l.pod("gateway", l.plan("first", `
- name: link
  type: bridge
  config: {isDefaultGateway: true, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]]}}
`, l.shared("link", "br0")))
	p.clusterNetwork()
	p.refused("bridge replaced the pod's IPv4 default route")
	l.leases()
}

// A default route is allowed if the topology permits it, if it is only a fallback, or if the pod has no default route
// for this address family.
func TestRealDefaultRouteThatIsAllowed(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	for name, test := range map[string]struct{ step, want string }{
		"intended": {`- {name: link, type: macvlan, defaultRoute: true, config: {mode: bridge, ipam: {type: host-local,
    dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]], routes: [{dst: 0.0.0.0/0}]}}}`, "net1 eth0"},
		"fallback": {`- {name: link, type: macvlan, config: {mode: bridge, ipam: {type: host-local,
    dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]], routes: [{dst: 0.0.0.0/0, priority: 500}]}}}`,
			"eth0 net1"},
		"other-family": {`- {name: link, type: macvlan, config: {mode: bridge, ipam: {type: host-local,
    dataDir: /var/lib/leases, ranges: [[{subnet: "fd00:1::/64"}]], routes: [{dst: "::/0"}]}}}`, "eth0"},
		"moved-by-sbr": {`- {name: link, type: macvlan, config: {mode: bridge, ipam: {type: host-local,
    dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24, gateway: 10.1.0.1}]], routes: [{dst: 0.0.0.0/0}]}}}
- {name: rules, type: sbr, dependOn: [link]}`, "eth0"},
	} {
		p := l.pod(name, l.plan("first", test.step, l.shared("link", "up0")))
		p.clusterNetwork()
		p.add()
		if got := strings.Join(p.defaultRoutes(unix.AF_INET), " "); got != test.want {
			t.Errorf("%s: default routes use %q, want %q", name, got, test.want)
		}
		p.del()
	}
}

// A later attempt for the same sandbox compares the routes with those from before the first attempt, because a plugin
// may have permanently removed the cluster network's route.
func TestRealDefaultRouteBeforeTheFirstAttempt(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	p := l.pod("a", l.plan("first", `- {name: link, type: macvlan, config: {mode: bridge, ipam: {type: host-local,
    dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]], routes: [{dst: 0.0.0.0/0}]}}}`, l.shared("link", "up0")))
	p.attachment.DefaultRoutes = map[string][]int{"IPv4": {1}} // the pod no longer has a default route
	p.refused("replaced the pod's IPv4 default route")
}

// The physical function of a scalable function stores no settings for it.
func TestRealSnapshotOfAScalableFunction(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	device, err := l.kernel().Snapshot(cnichain.Device{Name: "up0", IfName: "up0", Exclusive: true, PF: "0000:03:00.0",
		AuxiliaryDevice: "mlx5_core.sf.2"})
	if err != nil || device.VF != nil || device.Index == 0 {
		t.Errorf("snapshot = %+v, %v, want one with an index and without a VF", device, err)
	}
}

// For every device file that topologies can request, either the kernel has it or the error names the missing module.
func TestRealDeviceNodes(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	if err := l.kernel().CheckDeviceNode("/dev/net/tun"); err != nil {
		t.Skipf("needs the kernel module tun: %v", err)
	}
	l.uplink("up0")
	p := l.pod("a", l.plan("first", "- {name: link, type: macvlan, deviceNodes: [tun], config: {mode: bridge}}",
		l.shared("link", "up0")))
	p.add()
	if got := p.record().Steps[0].Files(); !slices.Equal(got, []string{"/dev/net/tun"}) {
		t.Errorf("files = %v, want /dev/net/tun", got)
	}
	p.del()
	l.says(l.kernel().CheckDeviceNode("/dev/no-such-device"), "/dev/no-such-device", "modprobe no_such_device")
}
