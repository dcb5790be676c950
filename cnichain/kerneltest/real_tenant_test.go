package kerneltest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/linkstate"
)

// errNotHere is returned by test cases that the machine's kernel does not support; these cases are skipped.
var errNotHere = errors.New("the kernel does not have it")

// tenant is an application with all capabilities in its pod's network namespace. Its methods run on a thread in that
// namespace.
type tenant struct {
	*realPod
	link netlink.Link // the device
}

// act runs a function as the tenant.
func (p *realPod) act(do func(tenant) error) error {
	_, err := inNamespace(p.path, func() (struct{}, error) {
		link, err := netlink.LinkByName("net1")
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, do(tenant{p, link})
	})
	return err
}

// set writes an attribute with RTM_SETLINK.
func (t tenant) set(kind int, value []byte) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(t.link.Attrs().Index)
	request.AddData(header)
	request.AddData(nl.NewRtAttr(kind, value))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// file writes to one of the device's sysfs files, using a sysfs instance for the pod's namespace.
func (t tenant) file(name, value string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	dir := t.TempDir()
	if err := unix.Mount("sysfs", dir, "sysfs", 0, ""); err != nil {
		return err
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	return os.WriteFile(filepath.Join(dir, "class/net", t.link.Attrs().Name, name), []byte(value), 0)
}

// stack creates a link on the device and sets it up.
func (t tenant) stack(link netlink.Link) error {
	link.Attrs().Name, link.Attrs().ParentIndex = "spy", t.link.Attrs().Index
	err := netlink.LinkAdd(link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errNotHere
	}
	return errors.Join(err, netlink.LinkSetUp(link))
}

// enslave adds the device to a master that the tenant creates.
func (t tenant) enslave(master netlink.Link) error {
	err := netlink.LinkAdd(master)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errNotHere
	}
	return errors.Join(err, netlink.LinkSetDown(t.link), netlink.LinkSetMaster(t.link, master))
}

// attach attaches a BPF program to a hook, with or without a BPF link. The program stays attached for the duration of
// the test.
func (t tenant) attach(hook ebpf.AttachType, withLink bool) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // TC_ACT_SHOT
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = program.Close() })
	if !withLink {
		return link.RawAttachProgram(link.RawAttachProgramOptions{Target: t.link.Attrs().Index, Program: program,
			Attach: hook})
	}
	attached, err := link.AttachTCX(link.TCXOptions{Interface: t.link.Attrs().Index, Program: program, Attach: hook})
	if err == nil {
		t.Cleanup(func() { _ = attached.Close() })
	}
	return err
}

func (t tenant) attachXDP() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}) // XDP_DROP
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = program.Close() })
	attached, err := link.AttachXDP(link.XDPOptions{Interface: t.link.Attrs().Index, Program: program,
		Flags: link.XDPGenericMode})
	if err == nil {
		t.Cleanup(func() { _ = attached.Close() })
	}
	return err
}

// moving returns the steps of a topology that moves a link with the given plugin.
func moving(plugin string) string { return strings.Replace(onlyHostDevice, "host-device", plugin, 1) }

// attribute returns an operation that sets a numeric attribute.
func attribute(kind int, value uint32) func(tenant) error {
	return func(t tenant) error { return t.set(kind, nl.Uint32Attr(value)) }
}

func stacks(link netlink.Link) func(tenant) error {
	return func(t tenant) error { return t.stack(link) }
}

func enslaves(master netlink.Link) func(tenant) error {
	return func(t tenant) error { return t.enslave(master) }
}

func file(name, value string) func(tenant) error {
	return func(t tenant) error { return t.file(name, value) }
}

func features(features map[string]bool) func(tenant) error {
	return func(t tenant) error { return setFeatures(t.link.Attrs().Name, features) }
}

// operations returns changes that a tenant can make to a device and that survive a move to another namespace.
func operations() map[string]func(tenant) error {
	const gsoMaxSize, groMaxSize, gsoIPv4, groIPv4 = 41, 58, 63, 64
	return map[string]func(tenant) error{
		"link mode":         func(t tenant) error { return t.set(unix.IFLA_LINKMODE, []byte{1}) },
		"operational state": func(t tenant) error { return t.set(unix.IFLA_OPERSTATE, []byte{5}) },
		"broadcast address": func(t tenant) error { return t.set(unix.IFLA_BROADCAST, []byte{2, 0, 0, 0, 9, 9}) },
		"largest segment":   attribute(gsoMaxSize, 4096), "largest received segment": attribute(groMaxSize, 4096),
		"largest IPv4 segment": attribute(gsoIPv4, 4096), "largest received IPv4 segment": attribute(groIPv4, 4096),
		"number of segments": attribute(unix.IFLA_GSO_MAX_SEGS, 1),
		"protocol down":      func(t tenant) error { return t.set(unix.IFLA_PROTO_DOWN, []byte{1}) },
		"group":              attribute(unix.IFLA_GROUP, 77), "queue length": attribute(unix.IFLA_TXQLEN, 3),
		"MTU": attribute(unix.IFLA_MTU, 900), "no ARP": func(t tenant) error { return netlink.LinkSetARPOff(t.link) },
		"promiscuous": func(t tenant) error { return netlink.SetPromiscOn(t.link) },
		"debug flag": func(t tenant) error {
			request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
			header := nl.NewIfInfomsg(unix.AF_UNSPEC)
			header.Index, header.Flags, header.Change = int32(t.link.Attrs().Index), unix.IFF_DEBUG, unix.IFF_DEBUG
			request.AddData(header)
			_, err := request.Execute(unix.NETLINK_ROUTE, 0)
			return err
		},
		"checksum offload":     features(map[string]bool{"tx-checksum-ip-generic": false}),
		"segmentation offload": features(map[string]bool{"tx-tcp-segmentation": false}),
		"scatter-gather":       features(map[string]bool{"tx-scatter-gather": false}),
		"receive offload":      features(map[string]bool{"rx-gro": false}),
		"flush timeout":        file("gro_flush_timeout", "7000"),
		"deferred interrupts":  file("napi_defer_hard_irqs", "9"),
		"receive steering":     file("queues/rx-0/rps_cpus", "1"),
		"flows of a queue":     file("queues/rx-0/rps_flow_cnt", "32"),
		"tcx ingress":          func(t tenant) error { return t.attach(ebpf.AttachTCXIngress, false) },
		"tcx egress":           func(t tenant) error { return t.attach(ebpf.AttachTCXEgress, false) },
		"tcx ingress by link":  func(t tenant) error { return t.attach(ebpf.AttachTCXIngress, true) },
		"tcx egress by link":   func(t tenant) error { return t.attach(ebpf.AttachTCXEgress, true) },
		"XDP by link":          tenant.attachXDP,
		"passthru macvlan":     stacks(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PASSTHRU}),
		"bridged macvlan":      stacks(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}),
		"macvtap": func(t tenant) error {
			return t.stack(&netlink.Macvtap{Macvlan: netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PRIVATE}})
		},
		"ipvlan": func(t tenant) error { return t.stack(&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}) },
		"VLAN":   func(t tenant) error { return t.stack(&netlink.Vlan{VlanId: 4094}) },
		"VLAN of 802.1ad": func(t tenant) error {
			return t.stack(&netlink.Vlan{VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD})
		},
		"VXLAN": func(t tenant) error {
			return t.stack(&netlink.Vxlan{VxlanId: 7, VtepDevIndex: t.link.Attrs().Index, Port: 4789,
				Group: net.IPv4(239, 1, 1, 1)})
		},
		"bridge": enslaves(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "trap"}}),
		"bond":   func(t tenant) error { return t.enslave(netlink.NewLinkBond(netlink.LinkAttrs{Name: "trap"})) },
		"VRF": func(t tenant) error {
			return t.enslave(&netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "trap"}, Table: 77})
		},
		"queueing discipline": func(t tenant) error {
			return netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: t.link.Attrs().Index,
				Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		},
		"name, alias and alternative name": func(t tenant) error {
			return errors.Join(netlink.LinkSetAlias(t.link, "up9"), netlink.LinkAddAltName(t.link, "docker0"),
				netlink.LinkSetName(t.link, "bond0"),
				netlink.LinkSetHardwareAddr(t.link, net.HardwareAddr{2, 0, 0, 0, 9, 9}))
		},
		"alternative name lo": func(t tenant) error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetDown(lo), netlink.LinkSetName(lo, "other"),
				netlink.LinkAddAltName(t.link, "lo"))
		},
	}
}

// The next tenant does not inherit any device settings or stacked links, even if something keeps the previous tenant's
// namespace alive.
func TestRealStackedAndSetByATenant(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		for name, do := range operations() {
			t.Run(mover+"/"+name, func(t *testing.T) {
				l := newRealLab(t, nil)
				l.uplink("up0")
				steps := strings.Replace(onlyHostDevice, "host-device", mover, 1)
				plan := l.plan("first", steps, l.exclusive("link", "up0"))
				before, state := l.linkState("up0"), l.state()
				a := l.pod("a", plan)
				a.add()
				if err := a.act(do); errors.Is(err, errNotHere) || errors.Is(err, unix.EOPNOTSUPP) {
					a.del()
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
				a.del()
				l.empty()
				if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
					t.Errorf("the next tenant inherits: %v", differences)
				}
				a.end()
				a.awaitGone()
				l.pods = nil
				l.expect(without(state, "a", "/run/cni/netdev/lock"))
			})
		}
	}
}

// linkState returns everything that the kernel reports about a link on the host.
func (l *realLab) linkState(name string) linkstate.State {
	l.Helper()
	found, err := netlink.LinkByName(name)
	l.must(err)
	l.await("the link "+name+" is "+netlink.LinkOperState(netlink.OperUp).String(), func() bool {
		found, err := netlink.LinkByName(name)
		return err == nil && found.Attrs().OperState == netlink.OperUp
	})
	state, err := linkstate.Read(found.Attrs().Index)
	l.must(err)
	return state
}

// A link that is stacked on the device in a namespace that the driver cannot enter is detected: the device stays in
// quarantine with its link down until that namespace is destroyed.
func TestRealStackedInANestedNamespace(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	kinds := map[string]func() netlink.Link{
		"passthru macvlan": func() netlink.Link { return &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PASSTHRU} },
		"bridged macvlan":  func() netlink.Link { return &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE} },
		"macvlan in source mode": func() netlink.Link {
			return &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_SOURCE}
		},
		"ipvlan": func() netlink.Link { return &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2} },
	}
	for _, mover := range movers() {
		for name, kind := range kinds {
			for _, how := range []string{"moved there", "made there"} {
				t.Run(strings.Join([]string{mover, name, how}, "/"), func(t *testing.T) {
					l := newRealLab(t, nil)
					l.uplink("up0")
					plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
					before := l.linkState("up0")
					a := l.pod("a", plan)
					a.add()
					nested := "/run/netns/nested"
					l.must(host.NewNamespace(nested))
					t.Cleanup(func() { _ = host.Linux{}.Unpin(nested) })
					err := a.act(func(tenant tenant) error {
						namespace, err := netns.GetFromPath(nested)
						if err != nil {
							return err
						}
						defer func() { _ = namespace.Close() }()
						spy := kind()
						if how == "made there" {
							spy.Attrs().Namespace = netlink.NsFd(namespace)
							spy.Attrs().Name, spy.Attrs().ParentIndex = "spy", tenant.link.Attrs().Index
							if err := netlink.LinkAdd(spy); errors.Is(err, unix.EOPNOTSUPP) {
								return errNotHere
							} else if err != nil {
								return err
							}
							return nil
						}
						if err := tenant.stack(spy); err != nil {
							return err
						}
						made, err := netlink.LinkByName("spy")
						return errors.Join(err, netlink.LinkSetNsFd(made, int(namespace)))
					})
					if errors.Is(err, errNotHere) {
						t.Skip(err)
					}
					l.must(err)
					l.says(a.tryDel(), "still used by an earlier pod", "of another network namespace")
					l.says(a.tryDel(), "still used by an earlier pod")
					links, err := netlink.LinkList()
					l.must(err)
					for _, link := range links {
						name := link.Attrs().Name
						if (name == "up0" || host.IsTransitName(name)) && link.Attrs().Flags&net.FlagUp != 0 {
							t.Errorf("the link %s was up although a tenant's link was stacked on it", name)
						}
					}
					b := l.pod("b", plan)
					b.refused("still attached to pod ns/a")
					l.must(host.Linux{}.Unpin(nested))
					l.await("the nested namespace has ended", func() bool { return a.tryDel() == nil })
					l.empty()
					if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
						t.Errorf("the next tenant inherits: %v", differences)
					}
				})
			}
		}
	}
}

// A tenant cannot hold on to the device by continuously creating links: the links are removed, or the device is
// quarantined.
func TestRealTenantKeepsStacking(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
			before := l.linkState("up0")
			a := l.pod("a", plan)
			a.add()
			stop := a.fight(func(h *netlink.Handle, i int) {
				for _, parent := range []string{"net1", fmt.Sprintf("m%d", i-1)} {
					if link, err := h.LinkByName(parent); err == nil {
						_ = h.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{
							Name: fmt.Sprintf("m%d", i), ParentIndex: link.Attrs().Index}})
					}
				}
			})
			_ = a.tryDel()
			stop()
			l.await("the device is returned", func() bool { return a.tryDel() == nil })
			l.empty()
			if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
				t.Errorf("the next tenant inherits: %v", differences)
			}
		})
	}
}

// fight calls a function with a handle for the pod's namespace in a tight loop until stop is called.
func (p *realPod) fight(do func(h *netlink.Handle, round int)) (stop func()) {
	done, wait := make(chan struct{}), sync.WaitGroup{}
	began := make(chan struct{})
	wait.Go(func() {
		h, err := p.handle()
		if err != nil {
			close(began)
			return
		}
		defer h.Close()
		for i := 0; ; i++ {
			do(h, i)
			if i == 2 {
				close(began)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	<-began
	return func() { close(done); wait.Wait() }
}

// After a forced deletion, the containers are still running while the device is being returned, and they change
// everything they can.
func TestRealTenantFightsForItsDevice(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.uplink("uplink9")
			plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
			before, state := l.linkState("up0"), l.state()
			for round := range 8 {
				a := l.pod(fmt.Sprintf("f%d", round), plan)
				a.add()
				names := []string{"net1", "bond0", "docker0", "uplink9"}
				stop := a.fight(func(h *netlink.Handle, i int) {
					_ = h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "trap"}})
					trap, _ := h.LinkByName("trap")
					links, _ := h.LinkList()
					for _, link := range links {
						if link.Type() != "veth" || link.Attrs().Name == "eth0" {
							continue
						}
						_ = h.LinkSetName(link, names[i%4])
						_ = h.LinkSetAlias(link, names[(i+1)%4])
						_ = h.LinkAddAltName(link, names[(i+2)%4]+"x")
						if trap != nil && i%3 == 0 {
							_ = h.LinkSetMaster(link, trap)
						}
						_ = h.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 9, byte(i)})
					}
				})
				a.del()
				stop()
				a.end()
				a.awaitGone()
				l.pods = nil
				if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
					t.Errorf("round %d: the next tenant inherits: %v", round, differences)
				}
				l.expect(state)
				if t.Failed() {
					t.FailNow()
				}
			}
			l.empty()
		})
	}
}

// A device that its tenant moved into another namespace still exists, even though it is neither in the pod nor on the
// host.
func TestRealDeviceHiddenByItsTenant(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
			before := l.linkState("up0")
			a := l.pod("a", plan)
			a.add()
			const nested = "/run/netns/nested"
			l.must(host.NewNamespace(nested))
			t.Cleanup(func() { _ = host.Linux{}.Unpin(nested) })
			l.must(a.act(func(tenant tenant) error {
				namespace, err := netns.GetFromPath(nested)
				if err != nil {
					return err
				}
				defer func() { _ = namespace.Close() }()
				return errors.Join(netlink.LinkSetNsFd(tenant.link, int(namespace)),
					netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1",
						Index: tenant.link.Attrs().Index}, PeerName: "impostor"}))
			}))
			l.says(a.tryDel(), "neither in the pod nor on the host")
			l.says(a.tryDel(), "neither in the pod nor on the host")
			// The tenant moves the device back under a different name and index.
			_, err := inNamespace(nested, func() (struct{}, error) {
				hidden, err := netlink.LinkByName("net1")
				if err != nil {
					return struct{}{}, err
				}
				pod, err := netns.GetFromPath(a.path)
				if err != nil {
					return struct{}{}, err
				}
				defer func() { _ = pod.Close() }()
				return struct{}{}, errors.Join(netlink.LinkSetName(hidden, "back"),
					netlink.LinkSetNsFd(hidden, int(pod)))
			})
			l.must(err)
			a.del()
			l.empty()
			if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
				t.Errorf("the next tenant inherits: %v", differences)
			}
		})
	}
}
