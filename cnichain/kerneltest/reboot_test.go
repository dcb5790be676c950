package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// sharedMAC is the MAC address shared by all VLANs on a NIC.
func sharedMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 7} }

// rebooted does what the driver does after a reboot: it rolls back the attachments in the journal, releases the claim,
// and retries the leftovers.
func (p *realPod) rebooted(plans ...cnichain.Plan) {
	p.Helper()
	for _, attachment := range p.restart(nil) {
		for range 12 {
			_ = p.executor.Del(p.Context(), attachment)
		}
	}
	for range 12 {
		if err := p.executor.VerifyReturned(plans); err != nil {
			p.Errorf("the claim was not released: %v", err)
		}
	}
	for _, leftover := range p.executor.Leftovers() {
		if err := p.executor.Retry(p.Context(), leftover.Key); err != nil {
			p.Errorf("%s is still quarantined: %v", leftover.Key, err)
		}
	}
	p.empty()
}

// VLANs on the same NIC share its address. After a reboot, another VLAN may have the index of the pod's VLAN, and the
// pod's VLAN may not exist yet.
func TestRebootMixesVLANsUp(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	vlan := func(l *realLab, name, alias string, index int) { // a veth, since this kernel may not support VLANs
		l.must(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: sharedMAC(), Index: index, MTU: 1500},
			PeerName:  "p" + name,
		}))
		l.Cleanup(func() { l.drop(name) })
		l.onHost(name, func(k netlink.Link) error { return netlink.LinkSetAlias(k, alias) })
		l.onHost(name, netlink.LinkSetUp)
		l.onHost("p"+name, netlink.LinkSetUp)
	}
	for name, comesBack := range map[string]bool{"in another order": true, "without the pod's": false} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			vlan(l, "up0.100", "vlan 100", 5001)
			vlan(l, "up0.200", "vlan 200", 5002)
			plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0.100"))
			a := l.pod("a", plan)
			a.add()
			a.reboot()
			l.drop("up0.200")
			vlan(l, "up0.200", "vlan 200", 5001)
			if comesBack {
				vlan(l, "up0.100", "vlan 100", 5002)
			}
			want := l.aliases()
			a.rebooted(plan)
			if current := l.aliases(); !slices.Equal(current, want) {
				t.Errorf("links of the host were\n%s\nand are now\n%s", strings.Join(want, "\n"),
					strings.Join(current, "\n"))
			}
		})
	}
}

// aliases returns a sorted list of the host's links with their aliases.
func (l *realLab) aliases() []string {
	l.Helper()
	links, err := netlink.LinkList()
	l.must(err)
	var lines []string
	for _, link := range links {
		attrs := link.Attrs()
		lines = append(lines, fmt.Sprintf("%d %s %q %s mtu=%d up=%v", attrs.Index, attrs.Name, attrs.Alias,
			attrs.HardwareAddr, attrs.MTU, attrs.Flags&net.FlagUp != 0))
	}
	slices.Sort(lines)
	return lines
}

// A change by an administrator that takes effect at a reboot is kept: the settings from the previous boot are not
// restored, neither when the previous attachment is rolled back nor after the next pod that uses the same claim.
func TestRebootEndsABaseline(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	mac := sharedMAC()
	attrs := netlink.LinkAttrs{Name: "up0", HardwareAddr: mac, MTU: 1500, TxQLen: 1000}
	l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up0p"}))
	plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0"))
	a := l.pod("a", plan)
	a.add()
	a.reboot()
	attrs.MTU, attrs.TxQLen = 1400, 500
	l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up0p"}))
	l.onHost("up0", netlink.LinkSetUp)
	l.onHost("up0", func(link netlink.Link) error { return netlink.LinkSetAlias(link, "of this boot") })
	want := l.aliases()
	a.rebooted(plan)
	if current := l.aliases(); !slices.Equal(current, want) {
		t.Errorf("links of the host were\n%s\nand are now\n%s", strings.Join(want, "\n"), strings.Join(current, "\n"))
	}
	before := l.state()
	b := l.pod("b", plan) // from the claim's record, which has the old baseline
	b.add()
	b.link("net1", func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetMTU(link, 1300) })
	b.attachment = l.restart(nil)[b.attachment.SandboxID] // the journal contains the new one
	b.del()
	l.must(l.executor.VerifyReturned([]cnichain.Plan{plan}))
	b.end()
	b.awaitGone()
	l.expect(before)
	if current := l.aliases(); !slices.Equal(current, want) {
		t.Errorf("links of the host were\n%s\nand are now\n%s", strings.Join(want, "\n"), strings.Join(current, "\n"))
	}
}

// A claim stays prepared across a reboot, after which another link has its device's name.
func TestRebootMakesTheDeviceAnotherLink(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0"))
	a := l.pod("a", plan)
	a.add()
	a.reboot()
	l.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "up0"}}))
	a.rebooted(plan)
	b := l.pod("b", plan)
	before := l.state()
	b.refused("its interface up0 is another link (bridge, was veth")
	l.expect(before)
}

// In this boot, the node is using the link, which it was not when the claim was prepared.
func TestRebootGivesTheDeviceAUse(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0"))
	l.bootID = "of the next boot"
	l.restart(nil)
	l.executor.CheckFree = func(_ context.Context, device *cnichain.Device) error {
		return fmt.Errorf("%s has an address", device.IfName)
	}
	before := l.state()
	a := l.pod("a", plan)
	a.refused("up0 has an address")
	a.end()
	a.awaitGone()
	l.expect(before)
}

// After a reboot, links of several kinds with the same address appear in a different order, with each other's names and
// indexes. The driver must not touch any of them.
func TestRebootPermutesLinks(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	makers := map[string]func(netlink.LinkAttrs) netlink.Link{
		"veth": func(a netlink.LinkAttrs) netlink.Link {
			return &netlink.Veth{LinkAttrs: a, PeerName: fmt.Sprint("p", a.Index)}
		},
		"dummy": func(a netlink.LinkAttrs) netlink.Link { return &netlink.Dummy{LinkAttrs: a} },
		"vxlan": func(a netlink.LinkAttrs) netlink.Link {
			return &netlink.Vxlan{LinkAttrs: a, VxlanId: a.Index, Port: 4789}
		},
		// Each macvlan has its own parent, since macvlans on the same parent need different addresses.
		"macvlan": func(a netlink.LinkAttrs) netlink.Link {
			parent := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("b", a.Index),
				Index: a.Index + 1000}}
			if err := netlink.LinkAdd(parent); err != nil {
				t.Fatal(err)
			}
			a.ParentIndex = a.Index + 1000
			return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
		},
	}
	for kind, maker := range makers {
		for name, order := range map[string]struct{ names, indexes []int }{
			"indexes rotated":           {[]int{0, 1, 2}, []int{1, 2, 0}},
			"names rotated":             {[]int{1, 2, 0}, []int{0, 1, 2}},
			"both rotated":              {[]int{1, 2, 0}, []int{2, 0, 1}},
			"exchanged":                 {[]int{1, 0, 2}, []int{1, 0, 2}},
			"as before":                 {[]int{0, 1, 2}, []int{0, 1, 2}},
			"the pod's is not there":    {[]int{1, 2}, []int{0, 1}},
			"another has its index":     {[]int{2, 1}, []int{0, 2}},
			"another has name or index": {[]int{0, 2}, []int{2, 0}},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				l := newRealLab(t, nil)
				boot := func(names, indexes []int) {
					for i := range names {
						attrs := netlink.LinkAttrs{Name: fmt.Sprint("up", names[i]), Index: 5001 + indexes[i],
							HardwareAddr: sharedMAC(), TxQLen: 1000}
						if err := netlink.LinkAdd(maker(attrs)); errors.Is(err, unix.EOPNOTSUPP) {
							t.Skipf("needs a kernel with links of kind %s", kind)
						} else {
							l.must(err)
						}
						l.onHost(attrs.Name, netlink.LinkSetUp)
						l.onHost(attrs.Name, func(link netlink.Link) error {
							return netlink.AddrAdd(link,
								&netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, byte(names[i]), 1).To4(),
									Mask: net.CIDRMask(24, 32)}})
						})
					}
				}
				shutdown := func() {
					links, err := netlink.LinkList()
					l.must(err)
					for _, link := range links {
						if strings.HasPrefix(link.Attrs().Name, "up") || strings.HasPrefix(link.Attrs().Name, "b5") {
							_ = netlink.LinkDel(link) // deleting one end of a pair also deletes the other
						}
					}
				}
				t.Cleanup(shutdown)
				boot([]int{0, 1, 2}, []int{0, 1, 2})
				plan := l.plan("first", onlyHostDevice, l.exclusive("link", "up0"))
				a := l.pod("a", plan)
				a.add()
				a.reboot()
				shutdown()
				boot(order.names, order.indexes)
				want, links := l.state(), l.aliases()
				a.rebooted(plan)
				l.expect(want)
				if current := l.aliases(); !slices.Equal(current, links) {
					t.Errorf("links of the host were\n%s\nand are now\n%s", strings.Join(links, "\n"),
						strings.Join(current, "\n"))
				}
			})
		}
	}
}

// Links such as tun and wireguard have no MAC address. A link that was recreated on the host under the name of the
// pod's device is a different link: the driver must neither delete the device in the pod nor mistake the new link for
// the returned device.
func TestLinkWithoutAddressIsMadeAgain(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	tun := func(*realLab) {
		link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "wg0"}, Mode: netlink.TUNTAP_MODE_TUN}
		if err := netlink.LinkAdd(link); err != nil {
			t.Skipf("needs support for links without an address: %v", err)
		}
		for _, fd := range link.Fds {
			_ = fd.Close()
		}
	}
	l := newRealLab(t, nil)
	tun(l)
	l.onHost("wg0", func(link netlink.Link) error { return netlink.LinkSetAlias(link, "the first") })
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "wg0")))
	a.add()
	tun(l)
	l.onHost("wg0", func(link netlink.Link) error { return netlink.LinkSetAlias(link, "the second") })
	// This causes the plugin's DEL to fail.
	a.link("net1", func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetAlias(link, "lo") })
	before := l.aliases()
	for range 4 {
		if err := a.tryDel(); err == nil {
			t.Error("the device counted as returned although another link has its name")
		}
	}
	current := l.aliases()
	for _, line := range before {
		if strings.Contains(line, "the second") && !slices.Contains(current, line) {
			t.Errorf("the host's link was %q, but now the links are\n%s", line, strings.Join(current, "\n"))
		}
	}
	l.drop("wg0")
	a.del()
	l.empty()
	l.onHost("wg0", func(link netlink.Link) error {
		if link.Attrs().Alias != "the first" {
			t.Errorf("alias of the device = %q, want \"the first\"", link.Attrs().Alias)
		}
		return nil
	})
}

// A link that is recreated by networkd has the same address as before (MACAddressPolicy=persistent).
func TestLookAlikeOnTheHost(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	dummy := func(alias string) {
		l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", HardwareAddr: sharedMAC(),
			TxQLen: 1000}, PeerName: alias[4:]}))
		l.onHost("up0", func(link netlink.Link) error { return netlink.LinkSetAlias(link, alias) })
	}
	dummy("the first")
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "up0")))
	a.add()
	dummy("the second")
	for range 4 {
		if err := a.tryDel(); err == nil {
			t.Error("the device counted as returned although another link has its name")
		}
	}
	l.onHost("up0", func(link netlink.Link) error {
		if link.Attrs().Alias != "the second" {
			t.Errorf("alias of the host's link = %q, want \"the second\"", link.Attrs().Alias)
		}
		return nil
	})
	l.drop("up0")
	a.del()
	l.onHost("up0", func(link netlink.Link) error {
		if link.Attrs().Alias != "the first" {
			t.Errorf("alias of the device = %q, want \"the first\"", link.Attrs().Alias)
		}
		return nil
	})
	l.empty()
}

// The attachment was created by a driver version that did not record boots, so the recorded index may be from an
// earlier boot.
func TestRecordWithoutBoot(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.uplink("other0")
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "up0")))
	before := l.state()
	a.add()
	old := a.record()
	device := old.Steps[0].Step.Device
	l.onHost("other0", func(link netlink.Link) error {
		device.BootID, device.Index = "", link.Attrs().Index
		return nil
	})
	l.must(l.chains.Save(old))
	a.attachment = l.restart(nil)[old.SandboxID]
	a.del()
	l.expect(before)
	l.empty()
	data, err := yaml.Marshal(a.attachment)
	l.must(err)
	if !strings.Contains(string(data), "bootID") {
		t.Errorf("the attachment has no boot ID:\n%s", data)
	}
}

// If a macvlan is created on top of another, the kernel attaches both to the same parent. On DEL, the new macvlan must
// be deleted rather than moved to the host.
func TestLinkBesideTheDevice(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.onHost("up0", func(parent netlink.Link) error {
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "m0",
			ParentIndex: parent.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE})
	})
	l.onHost("m0", netlink.LinkSetUp)
	a := l.pod("a", l.plan("first", "[{name: link, type: macvlan}]", l.exclusive("link", "m0")))
	before := l.aliases()
	a.add()
	a.link("net1", func(h *netlink.Handle, link netlink.Link) error { // forces the driver to search for the link
		return errors.Join(h.LinkSetDown(link), h.LinkSetName(link, "mine0"), h.LinkAddAltName(link, "other0"))
	})
	a.attachment.Steps[0].Failures = 5
	a.attachment.Steps[0].Step.Path = "/nowhere"
	a.attachment.Steps[0].Step.Type = "nothing" // the plugin no longer exists, so the driver removes what it can
	if err := a.tryDel(); err == nil {
		t.Error("DEL succeeded without its plugin")
	}
	if current := l.aliases(); !slices.Equal(current, before) {
		t.Errorf("links of the host were\n%s\nand are now\n%s", strings.Join(before, "\n"), strings.Join(current, "\n"))
	}
	a.has()
}
