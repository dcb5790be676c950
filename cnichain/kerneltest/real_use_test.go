package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// checkFree is the same check as in the driver: it returns an error if the node is using the device.
func (l *realLab) checkFree(ctx context.Context, device *cnichain.Device) error {
	sources, err := discovery.Host()
	if err != nil {
		return err
	}
	defer sources.Close()
	name := discovery.IfName(device.IfName)
	uses, err := discovery.Busy(ctx, sources, name)
	if err == nil && uses[name].Reason != "" {
		err = fmt.Errorf("the node uses %s: %s", name, uses[name].Reason)
	}
	return err
}

// useRule returns a routing rule that refers to a link.
func useRule(link string) *netlink.Rule {
	rule := netlink.NewRule()
	rule.IifName, rule.Table, rule.Priority = link, 300, 77
	return rule
}

// nodeUses returns ways for the node to start using the link up0 while no pod has it.
func nodeUses() map[string]func(*realLab, netlink.Link) error {
	address := func(link netlink.Link) error {
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 168, 50, 2),
			Mask: net.CIDRMask(24, 32)}})
	}
	uses := map[string]func(*realLab, netlink.Link) error{
		"address": func(_ *realLab, link netlink.Link) error { return address(link) },
		"default route": func(_ *realLab, link netlink.Link) error {
			_, all, _ := net.ParseCIDR("0.0.0.0/0")
			return errors.Join(address(link), netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all,
				Gw: net.IPv4(192, 168, 50, 1)}))
		},
		"IPv6 address": func(_ *realLab, link netlink.Link) error {
			parsed, err := netlink.ParseAddr("fd00::2/64")
			return errors.Join(err, netlink.AddrAdd(link, parsed))
		},
		"route without an address": func(_ *realLab, link netlink.Link) error {
			_, dst, _ := net.ParseCIDR("10.77.0.0/16")
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst,
				Scope: netlink.SCOPE_LINK, Table: 300})
		},
		"routing rule": func(l *realLab, link netlink.Link) error {
			rule := useRule(link.Attrs().Name)
			l.Cleanup(func() { _ = netlink.RuleDel(rule) })
			return netlink.RuleAdd(rule)
		},
		"port of a bridge": func(l *realLab, link netlink.Link) error {
			l.bridge("br7")
			bridge, err := netlink.LinkByName("br7")
			return errors.Join(err, netlink.LinkSetMaster(link, bridge))
		},
		"macvlan on it": func(l *realLab, link netlink.Link) error {
			l.Cleanup(func() { l.drop("mac7") })
			return netlink.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE,
				LinkAttrs: netlink.LinkAttrs{Name: "mac7", ParentIndex: link.Attrs().Index}})
		},
		"VXLAN on it": func(l *realLab, link netlink.Link) error {
			l.Cleanup(func() { l.drop("vx7") })
			return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vx7"}, VxlanId: 7, Port: 4789,
				VtepDevIndex: link.Attrs().Index})
		},
		"queueing discipline": func(_ *realLab, link netlink.Link) error {
			return netlink.QdiscAdd(&netlink.Tbf{Rate: 1 << 20, Limit: 1 << 16, Buffer: 1 << 14,
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(7, 0),
					Parent: netlink.HANDLE_ROOT}})
		},
		"ingress filter": func(_ *realLab, link netlink.Link) error {
			return netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
				Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		},
		"tcx program": func(l *realLab, link netlink.Link) error {
			return tenant{realPod: &realPod{realLab: l}, link: link}.attach(ebpf.AttachTCXIngress, false)
		},
		"permanent neighbour": func(_ *realLab, link netlink.Link) error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IPv4(192, 168, 50, 9), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 9, 9}})
		},
		"proxy neighbor": func(_ *realLab, link netlink.Link) error {
			return netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET,
				Flags: netlink.NTF_PROXY, IP: net.IPv4(192, 168, 50, 8)})
		},
		"proxy router": func(_ *realLab, link netlink.Link) error {
			return netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET6,
				Flags: netlink.NTF_PROXY | netlink.NTF_ROUTER, IP: net.ParseIP("fd00::8")})
		},
		"forwarding entry": func(_ *realLab, link netlink.Link) error {
			return netlink.NeighAppend(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE,
				Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 9, 7}})
		},
		"next hop": func(_ *realLab, link netlink.Link) error { return addNexthop(7, link.Attrs().Index) },
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return uses
	}
	for name, object := range map[string]string{
		"nftables chain":            "chain netdev used in { type filter hook ingress device %s priority 0; }",
		"nftables chain of inet":    "chain inet used in { type filter hook ingress device %s priority 0; }",
		"nftables chain of several": "chain netdev used in { type filter hook ingress devices = { lo, %s } priority 0; }",
	} {
		uses[name] = func(l *realLab, link netlink.Link) error {
			l.Cleanup(unusedByFilters)
			return nft("add table netdev used; add table inet used; add " + fmt.Sprintf(object, link.Attrs().Name))
		}
	}
	return uses
}

// unusedByFilters deletes the tables that nodeUses adds. After most tests, they do not exist.
func unusedByFilters() {
	_ = nft("delete table netdev used")
	_ = nft("delete table inet used")
}

func nft(commands string) error {
	if output, err := exec.Command("nft", commands).CombinedOutput(); err != nil {
		return fmt.Errorf("nft %s: %w: %s", commands, err, output)
	}
	return nil
}

// addNexthop adds a next hop object without a route that uses it.
func addNexthop(id, link int) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	body := append([]byte{unix.AF_INET}, make([]byte, unix.SizeofNhmsg-1)...)
	for attribute, value := range map[int]int{unix.NHA_ID: id, unix.NHA_OIF: link} {
		body = append(body, nl.NewRtAttr(attribute, nl.Uint32Attr(uint32(value))).Serialize()...)
	}
	request.AddRawData(body)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// A claim stays prepared while its pod gets another sandbox, and while a failed chain waits for its next attempt. In
// the meantime, its link is on the host, where the node may start to use it.
func TestRealLinkThatTheNodeBeganToUseIsNotTaken(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	const failing = onlyHostDevice + `- {name: more, type: tuning, dependOn: [link], config: {mtu: 9000000}}`
	for _, mover := range movers() {
		for name, use := range nodeUses() {
			for attempt, steps := range map[string]string{"next sandbox": onlyHostDevice, "next attempt": failing} {
				if mover == "netdev" && attempt == "next attempt" {
					continue // which plugin is used makes no difference before ADD
				}
				t.Run(strings.Join([]string{mover, name, attempt}, "/"), func(t *testing.T) {
					l := newRealLab(t, nil)
					l.uplink("up0")
					l.executor.CheckFree = l.checkFree
					plan := l.plan("first", strings.Replace(steps, "host-device", mover, 1), l.exclusive("link", "up0"))
					a := l.pod("a", plan)
					if err := a.tryAdd(); (err == nil) != (attempt == "next sandbox") {
						t.Fatalf("unexpected result of the first attempt: %v", err)
					}
					a.del()
					l.onHost("up0", func(link netlink.Link) error { return use(l, link) })
					b := l.pod("b", plan)
					before := l.state()
					b.refused("the node uses up0")
					l.expect(before)
					l.must(l.executor.VerifyReturned([]cnichain.Plan{plan}))
					l.expect(before)
				})
			}
		}
	}
}

// When the next sandbox starts, the link has a different name, or a different link has its name.
func TestRealLinkThatBecameAnotherIsNotTaken(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	changes := map[string]func(*realLab){
		"renamed": func(l *realLab) {
			l.onHost("up0", func(link netlink.Link) error { return netlink.LinkSetName(link, "other") })
		},
		"swapped": func(l *realLab) {
			l.uplink("up1")
			for _, names := range [][2]string{{"up0", "tmp"}, {"up1", "up0"}, {"tmp", "up1"}} {
				l.onHost(names[0], func(link netlink.Link) error { return netlink.LinkSetName(link, names[1]) })
			}
		},
		"replaced by a veth":   func(l *realLab) { l.drop("up0"); l.uplink("up0") },
		"replaced by a bridge": func(l *realLab) { l.drop("up0"); l.bridge("up0") },
		"deleted":              func(l *realLab) { l.drop("up0") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0"))
			a := l.pod("a", plan)
			a.add()
			a.del()
			change(l)
			b := l.pod("b", plan)
			before := l.state()
			b.refused("up0")
			l.expect(before)
		})
	}
}

// If an administrator changes a link between two sandboxes of a claim, the change becomes part of the new baseline. The
// change is not reverted, neither when the link is returned nor when the claim is released.
func TestRealChangesBetweenSandboxesAreKept(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.executor.CheckFree = l.checkFree
			plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
			a := l.pod("a", plan)
			a.add()
			a.del()
			l.onHost("up0", func(link netlink.Link) error {
				return errors.Join(netlink.LinkSetMTU(link, 1234), netlink.LinkSetAlias(link, "of the administrator"),
					netlink.LinkAddAltName(link, "rack7"), netlink.LinkSetTxQLen(link, 17), netlink.LinkSetDown(link),
					netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 7, 7}))
			})
			want := l.state()
			l.must(l.executor.VerifyReturned([]cnichain.Plan{plan}))
			l.expect(want)
			b := l.pod("b", plan)
			want = l.state()
			b.add()
			b.link("net1", func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetMTU(link, 1300) })
			b.del()
			l.expect(want)
			l.must(l.executor.VerifyReturned([]cnichain.Plan{plan}))
			l.expect(want)
			l.onHost("up0", func(link netlink.Link) error {
				if link.Attrs().Alias != "of the administrator" {
					t.Errorf("alias = %q, want \"of the administrator\"", link.Attrs().Alias)
				}
				return nil
			})
		})
	}
}
