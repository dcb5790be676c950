package discovery_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

func read(t *testing.T, h *discoverytest.Host) discovery.Facts {
	t.Helper()
	return readFrom(t, h.Sources())
}

func readFrom(t *testing.T, sources discovery.Sources) discovery.Facts {
	t.Helper()
	facts, err := discovery.Read(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// summary returns one line for each device.
func summary(facts discovery.Facts) string {
	var lines strings.Builder
	for _, d := range facts.Devices {
		fmt.Fprintf(&lines, "%s %s", d.Name, d.Type)
		for _, f := range []struct{ key, value string }{{"if", string(d.Interface)}, {"pci", string(d.PCIAddress)},
			{"pf", string(d.PFName)}, {"master", string(d.Master)}, {"parent", string(d.Parent)}} {
			if f.value != "" && f.value != string(d.Name) {
				fmt.Fprintf(&lines, " %s=%s", f.key, f.value)
			}
		}
		if d.DefaultRoute {
			lines.WriteString(" infrastructure")
		}
		lines.WriteString("\n")
	}
	for _, d := range facts.Orphans {
		fmt.Fprintf(&lines, "orphan %s of %s\n", d.PCIAddress, d.PFAddress)
	}
	for _, p := range facts.Problems {
		fmt.Fprintf(&lines, "problem %s\n", p)
	}
	return lines.String()
}

func check(t *testing.T, facts discovery.Facts, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(summary(facts))); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestReadSRIOV(t *testing.T) {
	facts := read(t, discoverytest.SRIOV())
	check(t, facts, `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`)
	want := discovery.Device{
		Name: "enp3s0f0", Interface: "enp3s0f0", Kind: "device", Type: "pf", MAC: "02:00:00:00:00:02", MTU: 1500,
		LinkSpeed: 100000, OperState: "up", AdminUp: true, Carrier: true, PCIAddress: "0000:03:00.0",
		PCIeRoot: "pci0000:00",
		Vendor:   "15b3", Product: "101d", Driver: "mlx5_core", SRIOVCapable: true, TotalVFs: 8, NumVFs: 2,
		VFIndex: -1, VLANID: -1,
	}
	if diff := cmp.Diff(want, facts.Devices[1]); diff != "" {
		t.Errorf("physical function (-want +got):\n%s", diff)
	}
	vf := discovery.Device{
		Name: "enp3s0f0v1", Type: "vf", PCIAddress: "0000:03:00.3", PCIeRoot: "pci0000:00", Vendor: "15b3",
		Product: "101e",
		Driver:  "mlx5_core", PFName: "enp3s0f0", PFAddress: "0000:03:00.0", VFIndex: 1, VLANID: -1,
		Settings: &discovery.VFSettings{SpoofCheck: true, LinkState: "auto"},
	}
	if diff := cmp.Diff(vf, facts.Devices[3]); diff != "" {
		t.Errorf("virtual function without interface (-want +got):\n%s", diff)
	}
	bridge := discovery.Device{
		Name: "br-data", Interface: "br-data", Kind: "bridge", Type: "bridge", MAC: "02:00:00:00:00:04", MTU: 9000,
		OperState: "up", AdminUp: true, Carrier: true, NUMANode: -1, VFIndex: -1, VLANID: -1,
		BridgeName: "br-data", BridgeType: "linux", VLANFiltering: true, Immovable: true,
	}
	if diff := cmp.Diff(bridge, facts.Devices[0]); diff != "" {
		t.Errorf("bridge (-want +got):\n%s", diff)
	}
}

func TestFactsSurviveJSON(t *testing.T) {
	facts := read(t, discoverytest.SRIOV())
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	var got discovery.Facts
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(facts, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadTypes(t *testing.T) {
	h := discoverytest.NewHost()
	h.Function("0000:04:00.0")
	h.NIC("eno1", "0000:04:00.0")
	h.Virtual(discovery.RecordedLink{Name: "bond0", Kind: "bond"})
	h.Virtual(discovery.RecordedLink{Name: "bond0.100", Kind: "vlan", Parent: h.Link("bond0").Index, VLANID: 100})
	// The parent index of a veth is the index of its peer.
	h.Virtual(discovery.RecordedLink{Name: "veth0", Kind: "veth", Parent: h.Link("eno1").Index})
	h.Virtual(discovery.RecordedLink{Name: "mv0", Kind: "macvlan", Parent: h.Link("eno1").Index})
	h.Virtual(discovery.RecordedLink{Name: "mv1", Kind: "macvlan", Parent: h.Link("eno1").Index})
	sources := h.Sources()
	rawLink(sources, "mv1").NetNsID = 0 // its parent is a link with that index in a different namespace
	facts := readFrom(t, sources)
	check(t, facts, `
bond0 bond
bond0.100 vlan parent=bond0
eno1 nic pci=0000:04:00.0
mv0 macvlan parent=eno1
mv1 macvlan
veth0 veth
`)
	if facts.Devices[1].VLANID != 100 {
		t.Errorf("VLANID = %d, want 100", facts.Devices[1].VLANID)
	}
}

// A representor and a NIC's second port share the uplink's PCI function, but only the uplink's device has the
// function's address.
func TestReadSeveralLinksOfOneFunction(t *testing.T) {
	h := discoverytest.NewHost()
	h.Function("0000:05:00.0")
	h.NIC("eth0", "0000:05:00.0")
	h.WriteFiles(h.Dir("0000:05:00.0")+"/net/eth0", "phys_port_name=pf0vf0")
	h.NIC("port1", "0000:05:00.0")
	h.WriteFiles(h.Dir("0000:05:00.0")+"/net/port1", "dev_port=1")
	h.NIC("uplink", "0000:05:00.0")
	h.WriteFiles(h.Dir("0000:05:00.0")+"/net/uplink", "phys_port_name=p0")
	check(t, read(t, h), `
eth0 nic
port1 nic
uplink nic pci=0000:05:00.0
`)
}

// Ports that share a PCI function are marked, so that they are not passed to plugins by address. Representors are not
// ports.
func TestReadPortsOfOneFunction(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string // by interface of the function
		want  string
	}{
		"one":         {map[string]string{"eth0": "dev_port=0"}, ""},
		"two":         {map[string]string{"eth0": "dev_port=0", "eth1": "dev_port=1"}, "eth0 eth1"},
		"representor": {map[string]string{"eth0": "phys_port_name=p0", "eth1": "phys_port_name=pf0vf0"}, ""},
		"three":       {map[string]string{"a": "", "b": "dev_port=1", "c": "dev_port=2"}, "a b c"},
	} {
		h := discoverytest.NewHost()
		h.Function("0000:05:00.0")
		h.Function("0000:06:00.0")
		h.NIC("other", "0000:06:00.0")
		for _, link := range slices.Sorted(maps.Keys(test.files)) {
			h.NIC(link, "0000:05:00.0")
			if file := test.files[link]; file != "" {
				h.WriteFiles(h.Dir("0000:05:00.0")+"/net/"+link, file)
			}
		}
		facts := read(t, h)
		var shared []string
		for i := range facts.Devices {
			if facts.Devices[i].SharedFunction {
				shared = append(shared, string(facts.Devices[i].Name))
			}
		}
		if got := strings.Join(shared, " "); got != test.want {
			t.Errorf("%s: devices with a shared function = %q, want %q", name, got, test.want)
		}
	}
}

func TestReadInfrastructure(t *testing.T) {
	h := discoverytest.NewHost()
	h.Function("0000:04:00.0")
	h.VirtualFunctions("0000:04:00.0", "0000:04:00.2")
	h.NIC("eno1", "0000:04:00.0")
	h.Virtual(discovery.RecordedLink{Name: "bond0", Kind: "bond"})
	h.Virtual(discovery.RecordedLink{Name: "bond0.100", Kind: "vlan", Parent: h.Link("bond0").Index, VLANID: 100})
	for _, l := range []discovery.RecordedLink{{Name: "breth0", Kind: "bridge"}, {Name: "other", Kind: "dummy"},
		{Name: "kubelet-ip", Kind: "dummy"}} {
		h.Virtual(l)
	}
	h.Enslave("eno1", "bond0")
	h.Enslave("bond0.100", "breth0")
	h.DefaultRoute("breth0")
	sources := h.Sources()
	sources.Links = addressed{sources.Links,
		map[string]int{"192.0.2.6": h.Link("other").Index, "192.0.2.7": h.Link("kubelet-ip").Index}}
	sources.NodeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	check(t, readFrom(t, sources), `
bond0 bond infrastructure
bond0.100 vlan master=breth0 parent=bond0 infrastructure
breth0 bridge infrastructure
eno1 pf pci=0000:04:00.0 master=bond0 infrastructure
eno1v0 vf pci=0000:04:00.2 pf=eno1
kubelet-ip dummy infrastructure
other dummy
`)
}

// addressed is a LinkLister that adds addresses to links.
type addressed struct {
	discovery.LinkLister
	indexes map[string]int
}

func (a addressed) AddrList(netlink.Link, int) ([]netlink.Addr, error) {
	var addresses []netlink.Addr
	for text, index := range a.indexes {
		addresses = append(addresses,
			netlink.Addr{LinkIndex: index, IPNet: &net.IPNet{IP: net.ParseIP(text), Mask: net.CIDRMask(24, 32)}})
	}
	return addresses, nil
}

func TestReadRetriesInterruptedDumps(t *testing.T) {
	sources := discoverytest.SRIOV().Sources()
	dumps := &interrupted{sources.Links, 2}
	sources.Links = dumps
	if facts := readFrom(t, sources); len(facts.Devices) != 4 {
		t.Errorf("got %d devices, want 4", len(facts.Devices))
	}
	dumps.left = 1000
	facts, err := discovery.Read(t.Context(), sources)
	if err == nil || len(facts.Devices) != 0 {
		t.Errorf("a partial dump was accepted: %v, %v", facts, err)
	}
}

func TestReadNeedsTheSysfsOfTheSameNamespace(t *testing.T) {
	h := discoverytest.SRIOV()
	delete(h.Sys.Links, "class/net/br-data")
	_, err := discovery.Read(t.Context(), h.Sources())
	if err == nil || !strings.Contains(err.Error(), "another network namespace") {
		t.Errorf("error = %v, want one about another network namespace", err)
	}
}

func TestWith(t *testing.T) {
	h := discoverytest.SRIOV()
	before := read(t, h)
	inPod := before.Devices[2]
	if inPod.Name != "enp3s0f0v0" {
		t.Fatalf("device 2 is %s, want enp3s0f0v0", inPod.Name)
	}
	h.Remove("eth7") // into a pod
	facts := read(t, h)
	if facts.Devices[2].Interface != "" {
		t.Fatal("the interface still exists")
	}
	if diff := cmp.Diff(before.Devices, facts.With(inPod).Devices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	gone := discovery.Device{Name: "veth9", Type: "veth"}
	check(t, facts.With(inPod, gone), `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
veth9 veth
`)
}

// While a physical function is in a pod, its virtual functions have no names until they are derived from a snapshot of
// the physical function.
func TestWithNamesOrphans(t *testing.T) {
	h := discoverytest.SRIOV()
	pf := read(t, h).Devices[1]
	h.Remove("enp3s0f0")
	facts := read(t, h)
	check(t, facts, `
br-data bridge
orphan 0000:03:00.2 of 0000:03:00.0
orphan 0000:03:00.3 of 0000:03:00.0
`)
	check(t, facts.With(pf), `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`)
}

func TestNamesAreUnique(t *testing.T) {
	h := discoverytest.SRIOV()
	h.Virtual(discovery.RecordedLink{Name: "enp3s0f0v0", Kind: "dummy"})
	facts := read(t, h)
	if len(facts.Devices) != 4 || facts.Devices[2].Type != discovery.TypeVF {
		t.Errorf("want 4 devices with a virtual function at index 2, got\n%s", summary(facts))
	}
	if len(facts.Problems) != 1 || !strings.Contains(facts.Problems[0].String(), "rename the interface") {
		t.Errorf("problems = %v, want one that recommends renaming the interface", facts.Problems)
	}
}

// If a physical function is renamed while one of its virtual functions is in use, the physical function's device keeps
// the old name. Otherwise, the two devices would be in different pools, and the scheduler could allocate the whole
// physical function even though the virtual function is allocated.
func TestRenamedFunctionKeepsItsNameWhileInUse(t *testing.T) {
	vf := func(pf discovery.IfName, index int, address discovery.PCIAddress) discovery.Device {
		return discovery.Device{Name: discovery.IfName(fmt.Sprintf("%sv%d", pf, index)), PFName: pf,
			PFAddress: "0000:03:00.0", VFIndex: index, PCIAddress: address}
	}
	facts := discovery.Facts{Devices: []discovery.Device{
		{Name: "ens1", Interface: "ens1", PCIAddress: "0000:03:00.0"},
		vf("ens1", 0, "0000:03:10.0"), vf("ens1", 1, "0000:03:10.1"),
		{Name: "eth0", Interface: "eth0", PCIAddress: "0000:02:00.0"}, // has taken over the old name
	}}
	var got []string
	union := facts.With(vf("eth0", 0, "0000:03:10.0"))
	for _, d := range union.Devices {
		got = append(got, fmt.Sprintf("%s=%s of %q", d.Name, d.PCIAddress, d.PFName))
	}
	want := []string{`eth0=0000:03:00.0 of ""`, `eth0v0=0000:03:10.0 of "eth0"`, `eth0v1=0000:03:10.1 of "eth0"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong devices (-want +got):\n%s", diff)
	}
	if len(union.Problems) != 1 {
		t.Errorf("problems = %v, want one", union.Problems)
	}
}
