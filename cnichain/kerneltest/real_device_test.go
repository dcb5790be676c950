package kerneltest

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

const realHostDevice = `
- name: link
  type: host-device
  config: {ipam: {type: static, addresses: [{address: 10.3.0.5/24, gateway: 10.3.0.1}], routes: [{dst: 10.99.0.0/16}]}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400, mac: "02:00:00:00:00:99", promisc: true, txQLen: 77, allmulti: true}}
- {name: rules, type: sbr, dependOn: [tune], config: {table: 300}}
`

// movers returns the plugins that move an entire link.
func movers() []string { return []string{"host-device", "netdev"} }

func TestRealWholeLinkComesHomeAsItWas(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		for name, prepare := range map[string]func(netlink.Link) error{"up": netlink.LinkSetUp,
			"down": netlink.LinkSetDown} {
			t.Run(mover+"/"+name, func(t *testing.T) {
				l := newRealLab(t, nil)
				l.uplink("up0", func(attrs *netlink.LinkAttrs) { attrs.MTU = 1450 })
				l.onHost("up0", func(link netlink.Link) error { return netlink.LinkAddAltName(link, "uplink-zero") })
				l.onHost("up0", prepare)
				steps := strings.Replace(realHostDevice, "host-device", mover, 1)
				a := l.pod("a", l.plan("first", steps, l.exclusive("link", "up0")))
				before := l.state()
				a.add()
				a.has("net1 veth mtu=1400 up=true 10.3.0.5/24")
				l.mentions("link", "a link net1 veth mac=02:00:00:00:00:99 mtu=1400 up=true alt=[uplink-zero]",
					"queue=77 promisc=1 allmulti=true")
				l.mentions("rule", "from 10.3.0.5/32 to all table 300")
				a.del()
				l.expect(before)
				l.empty()
			})
		}
	}
}

// A virtual link is not lost if the pod is deleted while the link is being moved in either direction. During the move,
// host-device keeps the link in a temporary network namespace, which would be destroyed if the plugin were killed.
func TestRealMoveIsCancelled(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			steps := strings.Replace(onlyHostDevice, "host-device", mover, 1)
			a := l.pod("a", l.plan("first", steps, l.exclusive("link", "up0")))
			before := l.state()
			interrupted := func(after time.Duration, do func(context.Context) error) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				timer := time.AfterFunc(after, cancel)
				defer timer.Stop()
				_ = do(ctx) // DEL follows, whether or not this call finished in time
			}
			for i := range 20 {
				after := time.Duration(3*i) * time.Millisecond
				a.plans(l.plan("first", steps, l.exclusive("link", "up0")))
				interrupted(after, func(ctx context.Context) error {
					return a.executor.Add(ctx, a.attachment, a.path, "node")
				})
				interrupted(after, func(ctx context.Context) error { return a.executor.Del(ctx, a.attachment) })
				a.del()
				l.expect(before)
				if t.Failed() {
					t.Fatalf("failed with the calls canceled after %s", after)
				}
			}
			l.empty()
		})
	}
}

// tampering is a change that an application can make to a device in its pod, or a change made on the host in the
// meantime.
type tampering struct {
	happens func(*realPod)
	// repair does what an administrator would have to do. Until then, DEL fails with an error that contains all parts
	// of complaint.
	repair    func(*realPod)
	complaint []string
	// attempts is, for each plugin, the number of DELs that may fail before the driver itself returns the device.
	attempts map[string]int
	// lost is true if the device no longer exists.
	lost bool
	// foreign is a link created by the application that must be kept.
	foreign string
}

func tamperings() map[string]tampering {
	change := func(do func(*netlink.Handle, netlink.Link) error) func(*realPod) {
		return func(p *realPod) { p.Helper(); p.link("net1", do) }
	}
	alias := func(alias string) func(*realPod) {
		return change(func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetAlias(link, alias) })
	}
	altName := func(name string) func(*realPod) {
		return change(func(h *netlink.Handle, link netlink.Link) error { return h.LinkAddAltName(link, name) })
	}
	return map[string]tampering{
		"alias removed":               {attempts: map[string]int{"host-device": 2}, happens: alias("")},
		"alias of another":            {happens: alias("other0")},
		"alias of a link of the host": {attempts: map[string]int{"host-device": 2}, happens: alias("lo")},
		"altname added":               {happens: altName("application")},
		"altname of a link of the host": {attempts: map[string]int{"host-device": 2, "netdev": 2},
			happens: altName("up0p")},
		"altname removed": {happens: change(func(h *netlink.Handle, link netlink.Link) error {
			return h.LinkDelAltName(link, "uplink-zero")
		})},
		"has its name again": {happens: func(p *realPod) { p.rename("net1", "up0") }},
		"macvlan on it": {foreign: "own0", happens: change(func(h *netlink.Handle, link netlink.Link) error {
			return h.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "own0",
				ParentIndex: link.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE})
		})},
		"port of a bridge": {foreign: "own0", happens: func(p *realPod) {
			p.makeBridge("own0")
			p.link("own0", func(_ *netlink.Handle, bridge netlink.Link) error {
				p.link("net1",
					func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetMaster(link, bridge) })
				return nil
			})
		}},
		"address changed": {happens: change(func(h *netlink.Handle, link netlink.Link) error {
			return h.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x77})
		})},
		"address and name changed": {happens: change(func(h *netlink.Handle, link netlink.Link) error {
			return errors.Join(h.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x77}), h.LinkSetDown(link),
				h.LinkSetName(link, "mine0"))
		})},
		"deleted": {lost: true, happens: func(p *realPod) { deleted(p) }},
		"name taken on the host": {
			happens:   func(p *realPod) { p.bridge("up0") },
			complaint: []string{"up0"},
			repair:    func(p *realPod) { p.onHost("up0", netlink.LinkDel) },
		},
	}
}

func TestRealWholeLinkTamperedWith(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		for name, tampering := range tamperings() {
			t.Run(mover+"/"+name, func(t *testing.T) {
				t.Run("indexes differ", func(t *testing.T) {
					l := newRealLab(t, nil)
					tampering.try(l, mover, 4243)
				})
				t.Run("indexes collide", func(t *testing.T) {
					l := newRealLab(t, nil)
					tampering.try(l, mover, 4242)
				})
			})
		}
	}
}

// try runs the test with a device that has index 4242 on the host, and a pod whose own network has a link with index
// eth1.
func (z tampering) try(l *realLab, mover string, eth1 int) {
	l.uplink("up0", func(attrs *netlink.LinkAttrs) { attrs.Index = 4242 })
	l.onHost("up0", func(link netlink.Link) error { return netlink.LinkAddAltName(link, "uplink-zero") })
	a := l.pod("a", l.plan("first", realKinds()[mover].steps(mover), l.exclusive("link", "up0")))
	a.inside(func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1", Index: eth1}, PeerName: "eth1p"})
	})
	want := l.state()
	a.add()
	z.happens(a)
	if len(z.complaint) > 0 {
		during := a.foreignLines("up0")
		for range 4 { // fewer attempts than the driver makes before it gives up
			l.says(a.tryDel(), z.complaint...)
		}
		if current := a.foreignLines("up0"); !slices.Equal(current, during) {
			l.Errorf("a foreign link was changed: it was %q and is now %q", during, current)
		}
		z.repair(a)
	}
	for range z.attempts[mover] {
		_ = a.tryDel()
	}
	a.del()
	want = with(want, a.about(z.foreign)...)
	if z.lost {
		want = without(want, "up0", "up0p")
	}
	l.expect(want)
	l.leases()
	l.empty()
	l.wipe("/run/cni")
}

// foreignLines returns the lines of the host's state that concern a link.
func (l *realLab) foreignLines(name string) []string {
	return slices.DeleteFunc(l.state(),
		func(line string) bool { return !strings.HasPrefix(line, "host link "+name+" ") })
}

// An exclusive device has only one owner at a time, and a repeated DEL does not take the device from the next owner.
func TestRealHostDeviceHasOneOwner(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	steps := realKinds()["host-device"].steps("host-device")
	plan := l.plan("first", steps, l.exclusive("link", "up0"))
	a, b := l.pod("a", plan), l.pod("b", plan)
	before := l.state()
	a.add()
	b.refused("up0", "still attached to pod ns/a")
	a.has("net1 veth mtu=1400 up=true 10.1.0.2/24")
	b.has()

	old := a.record()
	a.del()
	l.expect(before)
	b.plans(plan)
	b.add()
	during := l.state()
	a.attachment = old
	a.del()
	l.expect(during)
	b.del()
	l.expect(before)
	l.empty()
}

// A device cannot be renamed to one of its own alternative names. Whether or not the plugin handles this, the host must
// be unchanged afterwards.
func TestRealHostDeviceWithTheWantedNameAsAltname(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.onHost("up0", func(link netlink.Link) error { return netlink.LinkAddAltName(link, "net1") })
	a := l.pod("a", l.plan("first", realHostDevice, l.exclusive("link", "up0")))
	before := l.state()
	if err := a.tryAdd(); err == nil { // ADD may succeed or fail
		a.has("net1 veth mtu=1400 up=true 10.3.0.5/24")
		a.del()
	}
	l.expect(before)
	l.empty()
}

// The host-device plugin stores the device's name in the link's alias. After the pod has terminated, the plugin's alias
// must be gone, while an alias set by the administrator must still be there.
func TestRealHostDeviceAlias(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, test := range map[string]struct {
		alias   string
		happens func(*realPod) []string
	}{
		"none":           {"", nothing},
		"none, returned": {"", swapped},
		"some":           {"rack 7", nothing},
		"some, returned": {"rack 7", swapped},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.onHost("up0", func(link netlink.Link) error { return netlink.LinkSetAlias(link, test.alias) })
			a := l.pod("a", l.plan("first", realKinds()["host-device"].steps("host-device"),
				l.exclusive("link", "up0")))
			a.add()
			test.happens(a)
			a.del()
			l.onHost("up0", func(link netlink.Link) error {
				if current := link.Attrs().Alias; current != test.alias {
					t.Errorf("alias = %q, want %q", current, test.alias)
				}
				return nil
			})
			l.wipe("/run/cni")
		})
	}
}
