package discovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// fakeHardware returns configured values and records the queries that it receives.
type fakeHardware struct {
	settings []discovery.VFSettings
	err      error
	asked    []string

	// devices lists the RDMA devices, and links contains the links behind their ports. One device is unplugged when its
	// links are queried.
	devices           []discovery.RDMADevice
	links             map[int][]int
	rdmaErr, linksErr error
	unplugs           bool
}

func (f *fakeHardware) VFs(link int) ([]discovery.VFSettings, error) {
	f.asked = append(f.asked, fmt.Sprintf("vfs of %d", link))
	return f.settings, f.err
}

func (f *fakeHardware) EswitchMode(function discovery.PCIAddress) string {
	f.asked = append(f.asked, fmt.Sprintf("eswitch of %s", function))
	return discovery.EswitchLegacy
}

func (f *fakeHardware) Immovable(int) (immovable, known bool) { return false, false }

func (f *fakeHardware) RDMANetns() string {
	f.asked = append(f.asked, "rdma")
	return discovery.RDMAExclusive
}

func (f *fakeHardware) RDMADevices() ([]discovery.RDMADevice, error) {
	f.asked = append(f.asked, "rdma devices")
	return f.devices, f.rdmaErr
}

func (f *fakeHardware) RDMALinks(device int) ([]int, error) {
	f.asked = append(f.asked, fmt.Sprintf("links of rdma device %d", device))
	if f.unplugs {
		f.devices = slices.DeleteFunc(f.devices, func(d discovery.RDMADevice) bool { return d.Index == device })
	}
	return f.links[device], f.linksErr
}

func TestHardware(t *testing.T) {
	facts := read(t, discoverytest.SRIOV())
	want := &discovery.VFSettings{MAC: "02:00:00:00:03:02", VLAN: 100, QoS: 3, Trust: true, LinkState: "enable",
		MinTxRate: 100, MaxTxRate: 1000}
	if diff := cmp.Diff(want, byName(t, facts, "enp3s0f0v0").Settings); diff != "" {
		t.Errorf("settings of a virtual function with an interface (-want +got):\n%s", diff)
	}
	if pf := byName(t, facts, "enp3s0f0"); pf.Settings != nil || pf.EswitchMode != "" {
		t.Errorf("physical function has settings or an eswitch mode: %+v", pf)
	}
	if pf := byName(t, read(t, discoverytest.Switchdev()),
		"enp5s0f0np0"); pf.EswitchMode != discovery.EswitchSwitchdev {
		t.Errorf("eswitch mode = %q, want switchdev", pf.EswitchMode)
	}
	reference := read(t, discoverytest.ReferenceNode())
	for name, want := range map[discovery.IfName]string{"enp3s0f1v3": discovery.RDMAShared,
		"enp3s0f0": discovery.RDMAShared, "eno1": "", "br-data": ""} {
		if got := byName(t, reference, name).RDMANetns; got != want {
			t.Errorf("%s: RDMA namespace mode = %q, want %q", name, got, want)
		}
	}
}

// Unknown properties are left out, and only available properties are queried.
func TestHardwareThatDoesNotSay(t *testing.T) {
	two := []discovery.VFSettings{{VLAN: 1}, {VLAN: 2}}
	for name, test := range map[string]struct {
		hardware *fakeHardware
		change   func(h *discoverytest.Host)
		vlan     int // VLAN of the first virtual function; -1 if there are no settings
		problem  string
		asked    []string
	}{
		"all":         {&fakeHardware{settings: two}, nil, 1, "", []string{"eswitch of 0000:03:00.0", "vfs of 2"}},
		"unsupported": {&fakeHardware{}, nil, -1, "", []string{"eswitch of 0000:03:00.0", "vfs of 2"}},
		"failing": {&fakeHardware{err: errors.New("no buffer space")}, nil, -1, "no buffer space",
			[]string{"eswitch of 0000:03:00.0", "vfs of 2"}},
		"one left out": {&fakeHardware{settings: two[:1]}, nil, -1, "there are 2, but the kernel lists 1",
			[]string{"eswitch of 0000:03:00.0", "vfs of 2"}},
		"too many": {&fakeHardware{settings: two}, func(h *discoverytest.Host) {
			h.WriteFiles(pfDir, "sriov_totalvfs=256", "sriov_numvfs=181")
		}, -1, "there are 181, but the kernel can list at most 180", []string{"eswitch of 0000:03:00.0"}},
		"in a pod": {&fakeHardware{settings: two}, func(h *discoverytest.Host) { h.Remove("enp3s0f0") }, -1, "",
			[]string{"eswitch of 0000:03:00.0"}},
		"with rdma": {&fakeHardware{settings: two}, func(h *discoverytest.Host) { h.RDMA("0000:03:00.3", "mlx5_1") }, 1,
			"",
			[]string{"rdma devices", "rdma", "eswitch of 0000:03:00.0", "vfs of 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := discoverytest.SRIOV()
			if test.change != nil {
				test.change(h)
			}
			sources := h.Sources()
			replayed := *test.hardware
			sources.Hardware = &replayed
			roundTrip(t, sources) // including the problem
			sources.Hardware = test.hardware
			facts := readFrom(t, sources)
			if diff := cmp.Diff(test.asked, test.hardware.asked); diff != "" {
				t.Errorf("queries (-want +got):\n%s", diff)
			}
			vlan := -1
			for _, d := range slices.Concat(facts.Devices, facts.Orphans) {
				if d.PCIAddress == "0000:03:00.2" && d.Settings != nil {
					vlan = d.Settings.VLAN
				}
			}
			if vlan != test.vlan {
				t.Errorf("VLAN = %d, want %d", vlan, test.vlan)
			}
			problem := ""
			if len(facts.Problems) > 0 {
				problem = facts.Problems[0].String()
			}
			if want := test.problem; want != "" {
				want = "0000:03:00.0: cannot read the settings of the virtual functions (vlan, trust...): " + want
				if problem != want {
					t.Errorf("problem = %q, want %q", problem, want)
				}
			} else if problem != "" {
				t.Errorf("unexpected problem: %q", problem)
			}
		})
	}
}

func TestReadWithoutHardware(t *testing.T) {
	sources := discoverytest.SRIOV().Sources()
	sources.Hardware = nil
	if facts := readFrom(t, sources); len(facts.Devices) != 4 || facts.Devices[2].Settings != nil {
		t.Errorf("want four devices without settings, got\n%s", summary(facts))
	}
	roundTrip(t, sources)
}

// The message is in the format produced by the kernel's rtnl_fill_vfinfo.
func TestSettingsInAMessage(t *testing.T) {
	vf := func(list *nl.RtAttr, mac string, vlan, qos, spoofCheck, trust, state, minimum, maximum uint32) {
		info := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		info.AddRtAttr(nl.IFLA_VF_MAC, append(words(7), append([]byte(mac), make([]byte, 32-len(mac))...)...))
		info.AddRtAttr(nl.IFLA_VF_VLAN, words(7, vlan, qos))
		info.AddRtAttr(nl.IFLA_VF_RATE, words(7, minimum, maximum))
		info.AddRtAttr(nl.IFLA_VF_SPOOFCHK, words(7, spoofCheck))
		info.AddRtAttr(nl.IFLA_VF_LINK_STATE, words(7, state))
		info.AddRtAttr(nl.IFLA_VF_TRUST, words(7, trust))
	}
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	vf(list, "\x02\x00\x00\x00\x03\x02", 100, 3, 0, 1, 1, 100, 1000)
	vf(list, "\x00\x00\x00\x00\x00\x00", 0, 0, 1, 1<<32-1, 2, 0, 0) // the driver does not support trust
	vf(list, "\x00\x00\x00\x00\x00\x00", 0, 0, 0, 0, 9, 0, 1<<32-1)
	message := slices.Concat(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("enp3s0f0")).Serialize(), list.Serialize())
	got, err := discovery.SettingsIn(message)
	if err != nil {
		t.Fatal(err)
	}
	want := []discovery.VFSettings{
		{MAC: "02:00:00:00:03:02", VLAN: 100, QoS: 3, Trust: true, LinkState: "enable", MinTxRate: 100,
			MaxTxRate: 1000},
		{SpoofCheck: true, LinkState: "disable"},
		{MaxTxRate: 1<<32 - 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := discovery.SettingsIn(append(message, 200, 0, 1, 0)); err == nil {
		t.Error("a truncated attribute was accepted")
	}
}

// words encodes numbers in the same way as the kernel's structures.
func words(numbers ...uint32) []byte {
	var bytes []byte
	for _, n := range numbers {
		bytes = append(bytes, nl.Uint32Attr(n)...)
	}
	return bytes
}

// A function that never had an interface is listed for the sake of its RDMA devices. A function whose interface is in a
// pod is not listed, because its device is known from when the interface was on the host.
func TestRDMAWithoutInterface(t *testing.T) {
	h := discoverytest.InfiniBand()
	want := discovery.Device{
		Name: "pci-0000-9c-00-0", Type: discovery.TypeNIC, PCIAddress: "0000:9c:00.0", PCIeRoot: "pci0000:00",
		Vendor: "15b3", Product: "1021", Driver: "mlx5_core", RDMA: true, RDMADevices: []string{"mlx5_1"},
		RDMALinkLayer: discovery.RDMAInfiniBand, RDMANetns: discovery.RDMAShared,
		RDMAPort: discovery.RDMAPort{GUID: "0x0002c90300a1b2c1", State: "active", Rate: 400,
			PKeys: []string{"0x7fff", "0x8002"}},
		VFIndex: discovery.None, VLANID: discovery.None,
	}
	if diff := cmp.Diff(want, byName(t, read(t, h), "pci-0000-9c-00-0")); diff != "" {
		t.Errorf("adapter (-want +got):\n%s", diff)
	}
	h = discoverytest.RDMA()
	before := len(read(t, h).Devices)
	h.Remove("enp3s0f0")
	for _, d := range read(t, h).Devices {
		if d.PCIAddress == "0000:03:00.0" {
			t.Errorf("%d devices before; without its interface, the function is still the device %q", before, d.Name)
		}
	}
}
