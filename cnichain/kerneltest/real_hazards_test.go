package kerneltest

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// realKind is a way to attach a device: a root step with a particular plugin, followed by a tuning step. Each kind is
// tested with every hazard.
type realKind struct {
	config string
	device func(*realLab) cnichain.RootDevice
}

func realKinds() map[string]realKind {
	return map[string]realKind{
		"macvlan": {"mode: bridge, ", func(l *realLab) cnichain.RootDevice {
			l.uplink("up0")
			return l.shared("link", "up0")
		}},
		"bridge": {"", func(l *realLab) cnichain.RootDevice {
			l.bridge("br0")
			return l.shared("link", "br0")
		}},
		"host-device": {"", wholeLink},
		"netdev":      {"", wholeLink},
	}
}

func wholeLink(l *realLab) cnichain.RootDevice {
	l.uplink("up0")
	l.onHost("up0", func(link netlink.Link) error { return netlink.LinkAddAltName(link, "uplink-zero") })
	return l.exclusive("link", "up0")
}

func (k realKind) steps(plugin string) string {
	return `
- {name: link, type: ` + plugin + `, config: {` + k.config +
		`ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]]}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`
}

// hazard is an event that affects an attached pod before its DEL. After DEL, the host must be in its original state,
// and so must the pod, except for the foreign links returned by happens.
type hazard struct {
	name    string
	happens func(*realPod) (foreign []string)
	// moves is the original name of a pod link that is now listed among the foreign links under another name.
	moves string
	// ends is true if the runtime has released the pod.
	ends bool
	// kills is true if the event destroys a device that was moved into the pod.
	kills bool
}

func hazards() []hazard {
	return []hazard{
		{name: "none", happens: nothing},
		{name: "runtime let go", ends: true, happens: func(p *realPod) []string { p.end(); return nil }},
		{name: "reboot", ends: true, kills: true, happens: func(p *realPod) []string { p.reboot(); return nil }},
		{name: "driver restarted", happens: restarted},
		{name: "DEL twice", happens: deletedOnce},
		{name: "DEL twice, then no pod", ends: true, happens: func(p *realPod) []string {
			deletedOnce(p)
			p.end()
			p.awaitGone()
			return nil
		}},
		{name: "renamed", happens: renamed},
		{name: "renamed and let go", ends: true,
			happens: func(p *realPod) []string { renamed(p); p.end(); return nil }},
		{name: "deleted", kills: true, happens: deleted},
		{name: "deleted and let go", ends: true, kills: true,
			happens: func(p *realPod) []string { deleted(p); p.end(); return nil }},
		{name: "renamed, and a veth has the name",
			happens: func(p *realPod) []string { renamed(p); return p.makeVeth("net1") }},
		{name: "renamed, and a bridge has the name",
			happens: func(p *realPod) []string { renamed(p); return p.makeBridge("net1") }},
		{name: "renamed, and a bridge has it as altname",
			happens: func(p *realPod) []string { renamed(p); return p.makeBridge("own0", "net1") }},
		{name: "renamed, and eth0 has it as altname", happens: func(p *realPod) []string {
			renamed(p)
			p.link("eth0", func(h *netlink.Handle, link netlink.Link) error { return h.LinkAddAltName(link, "net1") })
			return []string{"eth0"}
		}},
		{name: "deleted, and a veth has the name", kills: true,
			happens: func(p *realPod) []string { deleted(p); return p.makeVeth("net1") }},
		{name: "deleted, and a bridge has the name", kills: true,
			happens: func(p *realPod) []string { deleted(p); return p.makeBridge("net1") }},
		{name: "swapped with eth0", moves: "eth0", happens: swapped},
		{name: "changed", happens: changed},
		{name: "files of plugins wiped",
			happens: func(p *realPod) []string { p.wipe("/var/lib/cni", "/run/cni", realLeases); return nil }},
		{name: "files wiped and rebooted", ends: true, kills: true, happens: func(p *realPod) []string {
			p.wipe("/var/lib/cni", "/run/cni", realLeases)
			p.reboot()
			return nil
		}},
	}
}

func nothing(*realPod) []string { return nil }

// restarted continues with the records as a new process reads them from the journal.
func restarted(p *realPod) []string {
	p.attachment = p.restart(nil)[p.attachment.SandboxID]
	return nil
}

// deletedOnce calls DEL and then continues with the record from before the call, as if a crash had prevented the DEL
// from being recorded.
func deletedOnce(p *realPod) []string {
	record := p.record()
	p.del()
	p.attachment = record
	return nil
}

// Changes that an application with CAP_NET_ADMIN can make.

func renamed(p *realPod) []string { p.rename("net1", "mine0"); return nil }

func (p *realPod) rename(name, wanted string) {
	p.Helper()
	p.link(name, func(h *netlink.Handle, link netlink.Link) error {
		if err := h.LinkSetDown(link); err != nil {
			return err
		}
		return h.LinkSetName(link, wanted)
	})
}

func deleted(p *realPod) []string {
	p.link("net1", func(h *netlink.Handle, link netlink.Link) error { return h.LinkDel(link) })
	return nil
}

func swapped(p *realPod) []string {
	renamed(p)
	p.rename("eth0", "net1")
	p.rename("mine0", "eth0")
	return []string{"net1"}
}

func changed(p *realPod) []string {
	p.link("net1", func(h *netlink.Handle, link netlink.Link) error {
		p.must(h.LinkSetDown(link))
		p.must(h.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x77}))
		return h.LinkSetMTU(link, 1300)
	})
	return nil
}

func (p *realPod) makeVeth(name string) []string {
	p.Helper()
	p.inside(func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "own1"})
	})
	return []string{name, "own1"}
}

func (p *realPod) makeBridge(name string, altNames ...string) []string {
	p.Helper()
	p.inside(func(h *netlink.Handle) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		p.must(h.LinkAdd(bridge))
		for _, alt := range altNames {
			p.must(h.LinkAddAltName(bridge, alt))
		}
		return nil
	})
	return []string{name}
}

func TestRealHazards(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for plugin, kind := range realKinds() {
		for _, hazard := range hazards() {
			t.Run(plugin+"/"+hazard.name, func(t *testing.T) { hazard.try(newRealLab(t, nil), plugin, kind) })
		}
	}
}

func (z hazard) try(l *realLab, plugin string, kind realKind) {
	device := kind.device(l)
	p := l.pod("a", l.plan("first", kind.steps(plugin), device))
	want := l.state()
	p.add()
	if lines := p.show(); len(lines) != 1 || lines[0][:4] != "net1" {
		l.Fatalf("links in the pod = %v, want only net1", lines)
	}
	foreign := z.happens(p)
	want = without(want, append(foreign, z.moves)...)
	want = with(want, p.about(foreign...)...)
	if z.ends {
		want = without(want, "a", "poda")
	}
	if z.kills && device.Device.Exclusive {
		want = without(want, "up0", "up0p")
	}
	p.del()
	if z.ends {
		p.awaitGone()
	}
	l.expect(want)
	l.leases()
	l.empty()
	l.wipe("/run/cni")
}
