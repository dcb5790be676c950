package sriov

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// observer scans the machine's devices if, and only if, it is notified of a change.
type observer struct {
	*bench
	source   discovery.Sources
	triggers <-chan struct{}
}

func newObserver(b *bench) *observer {
	b.Helper()
	o := &observer{bench: b}
	var err error
	o.source, err = discovery.Host()
	b.must(err)
	b.Cleanup(o.source.Close)
	o.triggers, err = discovery.Watch(b.Context(), discovery.KernelEvents(), time.Hour)
	b.must(err)
	return o
}

func (o *observer) read() string {
	o.Helper()
	facts, err := discovery.Read(o.Context(), o.source)
	o.must(err)
	var lines []string
	for _, problem := range facts.Problems {
		lines = append(lines, "! "+problem.String())
	}
	for _, pf := range []string{pf0, pf1} {
		for i := range facts.Devices {
			if d := &facts.Devices[i]; string(d.PCIAddress) == pf || string(d.PFAddress) == pf {
				lines = append(lines, describe(d))
			}
		}
	}
	for i := range facts.Orphans {
		lines = append(lines, "orphan "+describe(&facts.Orphans[i]))
	}
	return strings.Join(lines, "\n")
}

// describe returns a description of a device's properties. It omits link names, which are not deterministic. For
// virtual functions, it shows how the device name is derived from the physical function's name.
func describe(d *discovery.Device) string {
	if d.Type == discovery.TypePF {
		return fmt.Sprintf("%s pf numa %d root %s %s vfs %d/%d %s", d.PCIAddress, d.NUMANode, d.PCIeRoot, d.Driver,
			d.NumVFs, d.TotalVFs, d.OperState)
	}
	line := fmt.Sprintf("%s %s %s numa %d %s", d.PCIAddress, d.Type,
		strings.Replace(string(d.Name), string(d.PFName), "PF", 1), d.NUMANode, d.Driver)
	if d.Interface == "" {
		line += " away"
	}
	if d.Interface == "net1" {
		line += " called net1"
	}
	if s := d.Settings; s != nil && (s.VLAN != 0 || s.QoS != 0 || s.Trust || !s.SpoofCheck || s.MaxTxRate != 0) {
		line += fmt.Sprintf(" vlan %d/%d trust %v spoofchk %v rate %d mac %s", s.VLAN, s.QoS, s.Trust, s.SpoofCheck,
			s.MaxTxRate, s.MAC)
	}
	return line
}

// becomes waits for notifications until the devices are as expected.
func (o *observer) becomes(step, want string) {
	o.Helper()
	want = strings.TrimSpace(want)
	last := ""
	deadline := time.After(patience)
	for {
		select {
		case <-o.triggers:
			if last = o.read(); last == want {
				o.Log(step)
				return
			}
		case <-deadline:
			o.Fatalf("%s: the devices are wrong, or there was no notification (-want +have):\n%s", step, cmp.Diff(want,
				last))
		}
	}
}

func functions(numa, vfs int) string {
	bus := []int{0x41, 0x81}[numa]
	text := fmt.Sprintf("0000:%x:00.0 pf numa %d root pci0000:%x igb vfs %d/7 up\n", bus, numa, bus-1, vfs)
	for i := range vfs {
		text += fmt.Sprintf("0000:%x:%x.%d vf PFv%d numa %d igbvf\n", bus, 0x10+i/4, i%4*2, i, numa)
	}
	return text
}

// This is the life cycle of a NIC in the published design: while discovery is running, virtual functions are created,
// attached, bound to another driver, configured, and removed. Each step must trigger a notification.
func TestDiscoveryFollowsVFs(t *testing.T) {
	b := newBench(t, 0)
	o := newObserver(b)
	b.SetVFs(pf0, 4)
	b.SetVFs(pf1, 4)
	both := functions(0, 4) + functions(1, 4)
	o.becomes("4 functions each", both)

	change := func(text, line, with string) string {
		b.Helper()
		if strings.Count(text, line+"\n") != 1 {
			b.Fatalf("want line %q exactly once, got\n%s", line, text)
		}
		return strings.Replace(text, line+"\n", with+"\n", 1)
	}
	pod := cnitest.NewPod(t, "taker")
	namespace, err := netns.GetFromPath(pod)
	b.must(err)
	b.must(netlink.LinkSetNsFd(b.LinkOf(b.VF(pf0, 1)), int(namespace)))
	b.must(namespace.Close())
	taken := change(both, "0000:41:10.2 vf PFv1 numa 0 igbvf", "0000:41:10.2 vf PFv1 numa 0 igbvf away")
	o.becomes("one in a pod", taken)
	cnitest.RemovePod(pod)
	o.becomes("its pod is gone", both)

	b.bind(b.VF(pf1, 2), "vfio-pci")
	o.becomes("one has vfio-pci",
		change(both, "0000:81:10.4 vf PFv2 numa 1 igbvf", "0000:81:10.4 vf PFv2 numa 1 vfio-pci away"))
	b.bind(b.VF(pf1, 2), "")
	o.becomes("it has igbvf again", both)

	pf := b.LinkOf(pf1)
	b.must(netlink.LinkSetVfVlanQos(pf, 3, 100, 3))
	b.must(netlink.LinkSetVfTrust(pf, 3, true))
	b.must(netlink.LinkSetVfSpoofchk(pf, 3, false))
	b.must(netlink.LinkSetVfTxRate(pf, 3, 500))
	b.must(netlink.LinkSetVfHardwareAddr(pf, 3, net.HardwareAddr{2, 0, 0, 0, 0, 3}))
	o.becomes("one is configured", change(both, "0000:81:10.6 vf PFv3 numa 1 igbvf",
		"0000:81:10.6 vf PFv3 numa 1 igbvf vlan 100/3 trust true spoofchk false rate 500 mac 02:00:00:00:00:03"))

	b.SetVFs(pf0, 0)
	b.SetVFs(pf1, 0)
	o.becomes("no functions", functions(0, 0)+functions(1, 0))
	b.SetVFs(pf0, 7)
	o.becomes("7 functions of one", functions(0, 7)+functions(1, 0))
}

// The device names of virtual functions do not change when the names of their links change.
func TestDiscoveryKeepsNames(t *testing.T) {
	b := newBench(t, 2)
	o := newObserver(b)
	link := b.LinkOf(b.VF(pf0, 1))
	b.must(netlink.LinkSetName(link, "net1"))
	o.becomes("renamed", strings.Replace(functions(0, 2)+functions(1, 2), "41:10.2 vf PFv1 numa 0 igbvf",
		"41:10.2 vf PFv1 numa 0 igbvf called net1", 1))
}
