package discovery_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// rdmaOf returns the RDMA facts of the devices that have RDMA: names, link layer, and network namespace mode.
func rdmaOf(facts discovery.Facts) map[discovery.IfName]string {
	found := map[discovery.IfName]string{}
	for _, d := range facts.Devices {
		if d.RDMA || d.RDMALinkLayer != "" || d.RDMANetns != "" || len(d.RDMADevices) > 0 {
			found[d.Name] = strings.Join([]string{strings.Join(d.RDMADevices, ","), d.RDMALinkLayer, d.RDMANetns}, " ")
		}
	}
	return found
}

func TestRDMA(t *testing.T) {
	const mlx5Bond = "mlx5_bond_0 ethernet exclusive"
	want := map[discovery.IfName]string{
		"bond0": mlx5Bond, "enp3s0f0": mlx5Bond, "enp3s0f0v0": "mlx5_2 ethernet exclusive",
		"ib0": "ibp7s0 infiniband exclusive", "v0": "rxe0 ethernet exclusive",
	}
	if diff := cmp.Diff(want, rdmaOf(read(t, discoverytest.RDMA()))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Devices appear and disappear, and some are in other namespaces. Each test case changes the machine and specifies the
// expected difference.
func TestRDMAOfOtherMachines(t *testing.T) {
	for name, test := range map[string]struct {
		change func(h *discoverytest.Host)
		want   map[discovery.IfName]string // empty if no RDMA device is left
	}{
		"several on one link": {func(h *discoverytest.Host) {
			h.RDMAOn("irdma0", "v0", "v1")
			h.RDMAOn("another", "v0")
		}, map[discovery.IfName]string{"v0": "another,irdma0,rxe0 ethernet exclusive",
			"v1": "irdma0 ethernet exclusive"}},
		"both ways": {func(h *discoverytest.Host) { h.RDMAOn("rxe1", "enp3s0f1") },
			map[discovery.IfName]string{"enp3s0f1": "rxe1 ethernet exclusive",
				"bond0": "mlx5_bond_0,rxe1 ethernet exclusive"}},
		"of a port of the bond that failed over": {func(h *discoverytest.Host) {
			h.Netlink.RDMADevices[0].Links = []int{h.Link("enp3s0f1").Index}
		}, map[discovery.IfName]string{"enp3s0f1": "mlx5_bond_0 ethernet exclusive"}},
		"link elsewhere": {func(h *discoverytest.Host) {
			h.Remove("enp3s0f0v0") // the RDMA device belongs to its function
			h.Remove("v0")
		}, map[discovery.IfName]string{"v0": ""}},
		"device elsewhere": {func(h *discoverytest.Host) {
			gone := func(dir string) bool { return strings.HasSuffix(dir, "/mlx5_2") }
			h.Sys.Dirs = slices.DeleteFunc(h.Sys.Dirs, gone)
			h.Netlink.RDMADevices = slices.Delete(h.Netlink.RDMADevices, 1, 2)
		}, map[discovery.IfName]string{"enp3s0f0v0": "  exclusive"}},
		"link layer unknown": {func(h *discoverytest.Host) { h.Netlink.RDMADevices[3].LinkLayer = "" },
			map[discovery.IfName]string{"v0": "rxe0  exclusive"}},
		"link unknown": {func(h *discoverytest.Host) { h.Netlink.RDMADevices[3].Links = []int{1, 4711} },
			map[discovery.IfName]string{"v0": ""}},
		"representors": {func(h *discoverytest.Host) {
			h.NIC("rep0", "0000:03:00.0")
			h.WriteFiles(h.Dir("0000:03:00.0")+"/net/rep0", "phys_port_name=pf0vf0")
			h.Netlink.RDMADevices[0].Links = []int{h.Link("enp3s0f0").Index, h.Link("rep0").Index}
		}, nil},
		"recorded before netlink was asked": {func(h *discoverytest.Host) {
			h.Netlink.RDMADevices = nil
			h.Sys.Dirs = slices.DeleteFunc(h.Sys.Dirs,
				func(dir string) bool { return strings.HasPrefix(dir, "class/") })
		}, map[discovery.IfName]string{"bond0": "", "enp3s0f0": "mlx5_bond_0  exclusive", "ib0": "ibp7s0  exclusive",
			"enp3s0f0v0": "mlx5_2  exclusive", "v0": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			h := discoverytest.RDMA()
			want := rdmaOf(read(t, h))
			test.change(h)
			maps.Copy(want, test.want)
			maps.DeleteFunc(want, func(_ discovery.IfName, text string) bool { return text == "" })
			facts := read(t, h)
			if diff := cmp.Diff(want, rdmaOf(facts)); diff != "" || len(facts.Problems) > 0 {
				t.Errorf("problems: %v (-want +got):\n%s", facts.Problems, diff)
			}
			roundTrip(t, h.Sources())
		})
	}
}

// A device in a pod keeps the RDMA facts it had when it was taken, even if its RDMA devices were not moved with it.
func TestRDMAInsidePods(t *testing.T) {
	h := discoverytest.RDMA()
	before := read(t, h)
	snapshots := []discovery.Device{byName(t, before, "v0"), byName(t, before, "enp3s0f0v0")}
	h.Remove("v0")
	h.Remove("enp3s0f0v0")
	h.Netlink.RDMADevices = slices.DeleteFunc(h.Netlink.RDMADevices,
		func(d discovery.RecordedRDMADevice) bool { return d.Name == "mlx5_2" })
	h.Sys.Dirs = slices.DeleteFunc(h.Sys.Dirs, func(dir string) bool { return strings.HasSuffix(dir, "/mlx5_2") })
	h.RDMAOn("ibdev4", "v1") // the kernel's new name for a returned device whose name has been taken in the meantime
	want := rdmaOf(before)
	want["v1"] = "ibdev4 ethernet exclusive"
	if diff := cmp.Diff(want, rdmaOf(read(t, h).With(snapshots...))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A failure does not affect other facts, is reported as a problem, and is included in recordings.
func TestRDMAThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(h *discoverytest.Host)
		missing []discovery.IfName
		problem string
	}{
		"the list": {func(h *discoverytest.Host) { h.Netlink.RDMADevices, h.Netlink.RDMAError = nil, "no memory" },
			[]discovery.IfName{"bond0", "v0"},
			"cannot list RDMA devices; using only the RDMA devices of PCI functions: no memory"},
		"ports": {func(h *discoverytest.Host) {
			h.Netlink.RDMADevices[3].Links, h.Netlink.RDMADevices[3].Error = nil, "the kernel lists no port"
		}, []discovery.IfName{"v0"},
			"rxe0: cannot read the links below the ports of the RDMA device: the kernel lists no port"},
		"a name": {func(h *discoverytest.Host) { h.Netlink.RDMADevices[3].Name = "rx\n0" }, []discovery.IfName{"v0"},
			`ignoring RDMA device 3: "rx\n0" is not a valid name`},
		"no name": {func(h *discoverytest.Host) { h.Netlink.RDMADevices[3].Name = "" }, []discovery.IfName{"v0"},
			`ignoring RDMA device 3: "" is not a valid name`},
		"sysfs": {func(h *discoverytest.Host) { h.Sys.Errors["class/infiniband"] = "EIO" },
			[]discovery.IfName{"bond0", "v0"}, "cannot read infiniband: input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			h := discoverytest.RDMA()
			want := slices.Sorted(maps.Keys(rdmaOf(read(t, h))))
			want = slices.DeleteFunc(want, func(n discovery.IfName) bool { return slices.Contains(test.missing, n) })
			test.change(h)
			facts := read(t, h)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(rdmaOf(facts)))); diff != "" {
				t.Errorf("devices with RDMA (-want +got):\n%s", diff)
			}
			if len(facts.Problems) != 1 || facts.Problems[0].String() != test.problem {
				t.Errorf("problems = %q, want %q", facts.Problems, test.problem)
			}
			roundTrip(t, h.Sources())
		})
	}
}

// RDMA devices are only listed if sysfs contains any, and the links of virtual functions' RDMA devices are not queried.
func TestRDMAQuestions(t *testing.T) {
	hardware := &fakeHardware{devices: []discovery.RDMADevice{{Index: 7, Name: "mlx5_2"}, {Index: 9, Name: "rxe0"}}}
	h := discoverytest.RDMA()
	sources := h.Sources()
	sources.Hardware = hardware
	readFrom(t, sources)
	want := []string{"rdma devices", "links of rdma device 9", "rdma", "eswitch of 0000:03:00.0",
		"vfs of 2"}
	if diff := cmp.Diff(want, hardware.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sources = discoverytest.WithoutPCI().Sources()
	hardware = &fakeHardware{}
	sources.Hardware = hardware
	if readFrom(t, sources); len(hardware.asked) > 0 {
		t.Errorf("want no queries on a machine without RDMA because these load kernel modules, got %q", hardware.asked)
	}
}

// If a device disappears during a scan, or if the kernel interrupts a dump, everything is read again.
func TestRDMAChangesWhileItIsRead(t *testing.T) {
	h := discoverytest.RDMA()
	hardware := &fakeHardware{devices: []discovery.RDMADevice{{Index: 9, Name: "rxe0"}},
		linksErr: unix.EINVAL, unplugs: true}
	sources := h.Sources()
	sources.Hardware = hardware
	if facts := readFrom(t, sources); len(facts.Problems) > 0 || byName(t, facts, "v0").RDMA {
		t.Errorf("v0 has RDMA, or there are problems: %v", facts.Problems)
	}
	if lists := count(hardware.asked, "rdma devices"); lists != 3 { // the second reports the removal
		t.Errorf("the devices were listed %d times, want 3", lists)
	}
	hardware.rdmaErr, hardware.asked = netlink.ErrDumpInterrupted, nil
	if _, err := discovery.Read(t.Context(), sources); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("error for a list that is never complete = %v, want ErrDumpInterrupted", err)
	}
	if lists := count(hardware.asked, "rdma devices"); lists < 2 {
		t.Errorf("an interrupted list was read %d times, want at least 2", lists)
	}
}

func count(list []string, wanted string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != wanted }))
}

func TestLinkLayers(t *testing.T) {
	for protocol, want := range map[string]string{"roce": "ethernet", "ib": "infiniband", "opa": "infiniband",
		"iw": "ethernet", "usnic": "ethernet", "": "", "raw": ""} {
		if layer := discovery.RDMALinkLayer(protocol); layer != want {
			t.Errorf("link layer of %q = %q, want %q", protocol, layer, want)
		}
	}
}
