package kerneltest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

const onlyHostDevice = `
- {name: link, type: host-device}
`

// Sibling links have the same kind and address, like VLANs on the same NIC. A sibling on the host must not be mistaken
// for the device in the pod.
func TestRealSiblingOfTheSameAddress(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	same := func(attrs *netlink.LinkAttrs) { attrs.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 0x42} }
	l.uplink("vl100", same)
	l.uplink("vl200", same)
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "vl100")))
	before := l.state()
	a.add()
	a.del()
	l.expect(before)
	l.empty()
}

// An application hides the device in another namespace and replaces it with a link of its own. The impostor must never
// be treated as the device, and must not be given the device's name on the host.
func TestRealImpostors(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		impersonate(t, mover)
	}
}

func impersonate(t *testing.T, mover string) {
	t.Helper()
	for name, impostor := range map[string]func(h *netlink.Handle, index int, address net.HardwareAddr) error{
		"of the same index": func(h *netlink.Handle, index int, _ net.HardwareAddr) error {
			eth0, err := h.LinkByName("eth0")
			if err != nil {
				return err
			}
			attrs := netlink.LinkAttrs{Name: "net1", Index: index, ParentIndex: eth0.Attrs().Index}
			if err := h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
				return err
			}
			link, err := h.LinkByName("net1")
			if err != nil {
				return err
			}
			return h.LinkSetAlias(link, "uplink9") // host-device renames the link to the alias on the host
		},
		"of the same address": func(h *netlink.Handle, _ int, address net.HardwareAddr) error {
			return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "trap", HardwareAddr: address},
				PeerName: "trap-peer"})
		},
	} {
		t.Run(mover+"/"+name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			steps := strings.Replace(onlyHostDevice, "host-device", mover, 1)
			a := l.pod("a", l.plan("first", steps, l.exclusive("link", "up0")))
			hidden, err := netns.GetFromPath(cnitest.NewPod(t, "hidden"))
			l.must(err)
			a.add()
			index, address := 0, net.HardwareAddr(nil)
			a.link("net1", func(h *netlink.Handle, link netlink.Link) error {
				index, address = link.Attrs().Index, link.Attrs().HardwareAddr
				return h.LinkSetNsFd(link, int(hidden))
			})
			a.inside(func(h *netlink.Handle) error { return impostor(h, index, address) })
			mine := l.inPodOf(a)
			for range 4 {
				_ = a.tryDel()
			}
			if current := l.inPodOf(a); len(current) != len(mine) {
				t.Errorf("the application's links were changed: they were %v and are now %v", mine, current)
			}
			for _, name := range []string{"up0", "uplink9"} {
				if link, err := netlink.LinkByName(name); err == nil {
					t.Errorf("the application's %s was moved to the host as %s", link.Type(), name)
				}
			}
			l.must(hidden.Close())
		})
	}
}

// inPodOf returns the names of a pod's links.
func (l *realLab) inPodOf(p *realPod) (names []string) {
	p.inside(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, link := range links {
			names = append(names, link.Attrs().Name)
		}
		return err
	})
	return names
}

// Settings and XDP programs that an application leaves on the device do not affect the next tenant.
func TestRealNothingIsInherited(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, mode := range map[string]int{"generic XDP": unix.XDP_FLAGS_SKB_MODE,
		"native XDP": unix.XDP_FLAGS_DRV_MODE} {
		t.Run(name, func(t *testing.T) { inherit(newRealLab(t, nil), mode) })
	}
}

func inherit(l *realLab, mode int) {
	l.uplink("up0")
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "up0")))
	device := a.attachment.Steps[0].Step.Device
	a.add()
	a.link("net1", func(h *netlink.Handle, link netlink.Link) error {
		for _, err := range []error{
			h.SetPromiscOn(link), h.LinkSetAllmulticastOn(link), h.LinkSetARPOff(link), h.LinkSetMulticastOff(link),
			h.LinkSetTxQLen(link, 3), h.LinkSetGroup(link, 7), h.LinkAddAltName(link, "up0"),
		} {
			l.must(err)
		}
		return nil
	})
	if program, err := dropAll(); err != nil {
		l.Logf("continuing without an XDP program: %v", err)
	} else {
		_, err := inNamespace(a.path, func() (struct{}, error) {
			link, err := netlink.LinkByName("net1")
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, netlink.LinkSetXdpFdWithFlags(link, program, mode)
		})
		l.must(err)
	}
	a.del()
	now, err := host.Linux{}.Snapshot(*device)
	l.must(err)
	now.Index = device.Index
	if diff := cmp.Diff(device.Baseline, now.Baseline); diff != "" {
		l.Errorf("the next tenant inherits (-before +now):\n%s", diff)
	}
}

// dropAll loads an XDP program that drops all packets.
func dropAll() (fd int, err error) {
	instructions := []byte{0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0} // r0 = XDP_DROP; exit
	license := []byte("GPL\x00")
	attributes := struct {
		kind, count           uint32
		instructions, license uint64
		rest                  [112]byte
	}{
		kind: unix.BPF_PROG_TYPE_XDP, count: 2,
		instructions: uint64(uintptr(unsafe.Pointer(&instructions[0]))),
		license:      uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	loaded, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attributes)),
		unsafe.Sizeof(attributes))
	runtime.KeepAlive(instructions)
	runtime.KeepAlive(license)
	if errno != 0 {
		return 0, errno
	}
	return int(loaded), nil
}

// A link's lower device is recorded while the link is on the host, because it is hidden in the pod's namespace. The
// peer of a veth is not a lower device.
func TestLinksThatStandOnOthers(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	h := &testHost{T: t}
	h.must(unix.Mount("tmpfs", "/sys/class/net", "tmpfs", 0, ""))
	h.veth("port0", "port1")
	h.must(os.MkdirAll("/sys/class/net/port0/device", 0o755))
	h.must(os.Symlink("../0000:05:00.0", "/sys/class/net/port0/device/physfn"))
	port0, err := netlink.LinkByName("port0")
	h.must(err)
	macvlan := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "upper0", ParentIndex: port0.Attrs().Index}}
	h.must(netlink.LinkAdd(macvlan))
	seen := func(name string) *cnichain.LowerLink {
		h.Helper()
		device, err := host.Linux{}.Snapshot(cnichain.Device{Name: name, IfName: name})
		h.must(err)
		return device.StandsOn
	}
	want := &cnichain.LowerLink{Index: port0.Attrs().Index, PF: "0000:05:00.0"}
	if diff := cmp.Diff(want, seen("upper0")); diff != "" {
		t.Errorf("lower devices of upper0 (-want +got):\n%s", diff)
	}
	if below := seen("port1"); below != nil {
		t.Errorf("the veth has lower devices %+v, want none", below)
	}
	pod, err := netns.GetFromPath(cnitest.NewPod(t, "elsewhere"))
	h.must(err)
	defer func() { h.must(pod.Close()) }()
	h.must(netlink.LinkSetNsFd(port0, int(pod)))
	if below := seen("upper0"); below != nil {
		t.Errorf("upper0 has lower devices %+v, want none because these are in a pod", below)
	}
}

// A PCI function may have several ports and representors. While one of these links is in a pod, sysfs only shows the
// others.
func TestOtherPortIsNotTheDevice(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	h := &testHost{T: t}
	const function = "0000:01:00.0"
	h.must(unix.Mount("tmpfs", "/sys/bus/pci/devices", "tmpfs", 0, ""))
	h.must(unix.Mount("tmpfs", "/sys/class/net", "tmpfs", 0, ""))
	inSys := func(device, name, link string) {
		h.Helper()
		dir := "/sys/bus/pci/devices/" + device + "/net/" + name
		h.must(os.MkdirAll(dir, 0o755))
		found, err := net.InterfaceByName(link)
		h.must(err)
		h.must(os.WriteFile(dir+"/ifindex", fmt.Appendln(nil, found.Index), 0o644))
	}
	for i, link := range []string{"port0", "port1"} {
		h.veth(link, link+"p")
		inSys(function, link, link)
		h.must(os.MkdirAll("/sys/class/net/"+link, 0o755))
		h.must(os.WriteFile("/sys/class/net/"+link+"/dev_port", []byte{'0' + byte(i), '\n'}, 0o644))
	}
	device, err := host.Linux{}.Snapshot(cnichain.Device{Name: "port0", IfName: "port0", PCIAddress: function,
		Exclusive: true})
	h.must(err)
	// With virtio, the link belongs to a virtio device below the PCI function.
	inSys("0000:02:00.0/virtio3", "port1", "port1")
	if onHost, err := (host.Linux{}).OnHost(cnichain.Device{Name: "port1", IfName: "port1",
		PCIAddress: "0000:02:00.0"}); !onHost || err != nil {
		t.Errorf("for the virtio link, OnHost returned %v, %v, want true", onHost, err)
	}
	// A link is recognized even if it was renamed after the names were read.
	inSys("0000:03:00.0", "port0", "port1")
	inSys("0000:03:00.0", "port1", "port1")
	if now, err := (host.Linux{}).Snapshot(cnichain.Device{Name: "x", IfName: "port0",
		PCIAddress: "0000:03:00.0"}); now.IfName != "port1" || err != nil {
		t.Errorf("link with the old name port0 is now %s, %v, want port1", now.IfName, err)
	}
	// A link that is being moved to another network namespace already has its new index, which may belong to another
	// link in the old namespace.
	inSys("0000:04:00.0", "moving", "port1")
	if onHost, err := (host.Linux{}).OnHost(cnichain.Device{Name: "y", IfName: "moving",
		PCIAddress: "0000:04:00.0"}); onHost || err != nil {
		t.Errorf("for a link whose index belongs to another one, OnHost returned %v, %v, want false", onHost, err)
	}
	before := h.state()
	h.must(os.RemoveAll("/sys/bus/pci/devices/" + function + "/net/port0"))
	if onHost, err := (host.Linux{}).OnHost(device); onHost || err != nil {
		t.Errorf("for a link missing from sysfs, OnHost returned %v, %v, want false", onHost, err)
	}
	if err := (host.Linux{}).Restore(device); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unexpected error: %v", err)
	}
	h.expect("the other port", before)
}

// The node keeps the link of a step without an interface: Restore does not revert what the administrator changed in the
// meantime, and does not bring the link down because another pod uses it.
func TestKeptLinkIsNotRestored(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	h := &testHost{T: t}
	h.veth("port0", "port0p")
	device, err := host.Linux{}.Snapshot(cnichain.Device{Name: "port0", IfName: "port0", Exclusive: true})
	h.must(err)
	link, err := netlink.LinkByName("port0")
	h.must(err)
	h.must(netlink.LinkSetMTU(link, 1400))
	h.must(netlink.LinkSetUp(link))
	h.must(netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "of-another",
		ParentIndex: link.Attrs().Index}}))
	before := h.state()
	device.KeepsLink = true
	h.must(host.Linux{}.Restore(device))
	h.expect("a kept link", before)
	device.KeepsLink = false
	_ = host.Linux{}.Restore(device)
	if now, err := netlink.LinkByName("port0"); err != nil || now.Attrs().MTU != 1500 {
		t.Errorf("the settings of other links are not restored: %v, %v", now, err)
	}
}
