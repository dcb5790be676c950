package discovery_test

import (
	"fmt"
	"io/fs"
	"path"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// machines are made by code, each for one thing that real machines have.
var machines = map[string]struct {
	make func() *host
	want string // see summary; empty: not compared
}{
	"sriov": {make: sriovHost, want: `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`},
	"reference node": {make: referenceNode, want: `
br-data bridge
br-int bridge
eno1 nic pci=0000:01:00.0 infrastructure
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
enp3s0f0v2 vf pci=0000:03:00.4 pf=enp3s0f0
enp3s0f0v3 vf pci=0000:03:00.5 pf=enp3s0f0
enp3s0f0v4 vf pci=0000:03:00.6 pf=enp3s0f0
enp3s0f0v5 vf pci=0000:03:00.7 pf=enp3s0f0
enp3s0f0v6 vf pci=0000:03:01.0 pf=enp3s0f0
enp3s0f0v7 vf pci=0000:03:01.1 pf=enp3s0f0
enp3s0f1 pf pci=0000:03:00.1
enp3s0f1v0 vf pci=0000:03:01.2 pf=enp3s0f1
enp3s0f1v1 vf pci=0000:03:01.3 pf=enp3s0f1
enp3s0f1v2 vf pci=0000:03:01.4 pf=enp3s0f1
enp3s0f1v3 vf pci=0000:03:01.5 pf=enp3s0f1
ovn-k8s-mp0 bridge
`},
	"8 x 128": {make: func() *host { return manyFunctions(8, 128) }},
	"vf in a bridge": {make: enslavedFunction, want: `
br0 bridge
eth0 pf pci=0000:03:00.0
eth0v0 vf if=eth1 pci=0000:03:00.2 pf=eth0 master=br0
`},
	"switchdev": {make: switchdev, want: `
enp5s0f0np0 pf pci=0000:05:00.0
enp5s0f0np0v0 vf pci=0000:05:00.2 pf=enp5s0f0np0
eth0 nic
eth1 nic
eth2 nic
`},
	"open vswitch below the node's address": {make: openVSwitch, want: `
br-ex bridge infrastructure
eno1 nic pci=0000:01:00.0 master=ovs-system infrastructure
eno2 nic pci=0000:02:00.0
ovs-system bridge
`},
	"names": {make: oddNames, want: `
BOND_1 bond
Eth0 pf pci=0000:03:00.0 master=BOND_1
Eth0.4094 vlan parent=Eth0
Eth0v0 vf if=Eth0_vf.0 pci=0000:03:00.2 pf=Eth0
br_data.1 bridge
`},
	"virtio": {make: virtio, want: `
ens4 pf pci=0000:00:04.0
ens4v0 vf pci=0000:00:04.1 pf=ens4
`},
	"without pci": {make: withoutPCI, want: `
end0 nic
enx0242ac110002 nic
`},
}

// referenceNode is a node of the kind that the driver is made for: two physical functions of a card with RDMA, a bridge
// for data, and Open vSwitch for the cluster's network.
func referenceNode() *host {
	h := newHost()
	h.function("0000:01:00.0", "vendor=0x8086", "device=0x1521")
	h.nic(2, "eno1", "0000:01:00.0")
	h.files(h.real("0000:01:00.0")+"/net/eno1", "speed=1000")
	address := 2 // of the virtual functions of both, one after the other
	for i, count := range []int{8, 4} {
		pf := fmt.Sprintf("0000:03:00.%d", i)
		h.function(pf, "device=0x1021")
		var vfs []string
		for range count {
			vfs = append(vfs, fmt.Sprintf("0000:03:%02x.%d", address/8, address%8))
			address++
		}
		h.sriov(pf, vfs...)
		h.nic(3+i, fmt.Sprintf("enp3s0f%d", i), pf)
		for j, function := range append([]string{pf}, vfs...) {
			h.sys[h.real(function)+"/infiniband"] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
			h.sys[fmt.Sprintf("%s/infiniband/mlx5_%d", h.real(function), 10*i+j)] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
		}
	}
	h.files(h.real("0000:03:00.1")+"/net/enp3s0f1", "speed=25000")
	for i, vf := range []string{"0000:03:00.2", "0000:03:00.3"} {
		h.nic(10+i, fmt.Sprintf("enp3s0f0v%d", i), vf)
	}
	filtering := true
	data := attrs(20, "br-data")
	data.MTU = 9000
	h.virtual(&netlink.Bridge{LinkAttrs: data, VlanFiltering: &filtering})
	h.virtual(&netlink.GenericLink{LinkAttrs: attrs(21, "br-int"), LinkType: "openvswitch"})
	h.virtual(&netlink.GenericLink{LinkAttrs: attrs(22, "ovn-k8s-mp0"), LinkType: "openvswitch"})
	h.defaultRoute(2)
	return h
}

// manyFunctions is a machine with so many physical functions, on two NUMA nodes, with so many virtual functions each, all
// with interfaces.
func manyFunctions(pfs, vfs int) *host {
	h := newHost()
	index := 1
	for i := range pfs {
		bus := 0x10*i + 3
		pf := fmt.Sprintf("0000:%02x:00.0", bus)
		h.functionAt(fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.0", bus-3, bus-3), pf, fmt.Sprintf("numa_node=%d", i%2))
		var addresses []string
		for j := range vfs {
			addresses = append(addresses, fmt.Sprintf("0000:%02x:%02x.%d", bus+(j+8)/256, (j+8)%256/8, j%8))
		}
		h.sriov(pf, addresses...)
		h.files(h.real(pf), fmt.Sprintf("sriov_totalvfs=%d", vfs))
		index++
		h.nic(index, fmt.Sprintf("ens%d", i), pf)
		for j, address := range addresses {
			index++
			h.nic(index, fmt.Sprintf("ens%dv%d", i, j), address)
		}
	}
	return h
}

// enslavedFunction has a virtual function that is a port of a bridge.
func enslavedFunction() *host {
	h := newHost()
	h.function("0000:03:00.0")
	h.sriov("0000:03:00.0", "0000:03:00.2")
	h.nic(2, "eth0", "0000:03:00.0")
	h.nic(3, "eth1", "0000:03:00.2")
	h.links[1].Attrs().MasterIndex = 4
	h.virtual(&netlink.Bridge{LinkAttrs: attrs(4, "br0")})
	return h
}

// switchdev has a physical function in switchdev mode, with the representors of itself towards the host, a virtual
// function and a subfunction. Their indexes are lower than that of the uplink.
func switchdev() *host {
	h := newHost()
	h.function("0000:05:00.0")
	h.sriov("0000:05:00.0", "0000:05:00.2")
	for i, port := range []string{"c1pf0", "pf0vf0", "pf0sf88"} {
		name := fmt.Sprintf("eth%d", i)
		h.nic(2+i, name, "0000:05:00.0")
		h.files(h.real("0000:05:00.0")+"/net/"+name, "phys_port_name="+port, "phys_switch_id=c2a9030042ab1e0c")
	}
	h.nic(9, "enp5s0f0np0", "0000:05:00.0")
	h.files(h.real("0000:05:00.0")+"/net/enp5s0f0np0", "phys_port_name=p0", "phys_switch_id=c2a9030042ab1e0c")
	return h
}

// openVSwitch has the node's address on a bridge of Open vSwitch, and the network card as its port.
func openVSwitch() *host {
	h := newHost()
	h.function("0000:01:00.0")
	h.function("0000:02:00.0")
	h.nic(2, "eno1", "0000:01:00.0")
	h.nic(3, "eno2", "0000:02:00.0")
	h.links[0].Attrs().MasterIndex = 4
	h.virtual(&netlink.GenericLink{LinkAttrs: attrs(4, "ovs-system"), LinkType: "openvswitch"})
	h.virtual(&netlink.GenericLink{LinkAttrs: attrs(5, "br-ex"), LinkType: "openvswitch"})
	h.defaultRoute(5)
	return h
}

// oddNames has names that neither Kubernetes nor sorting by numbers would like.
func oddNames() *host {
	h := newHost()
	h.function("0000:03:00.0")
	h.sriov("0000:03:00.0", "0000:03:00.2")
	h.nic(2, "Eth0", "0000:03:00.0")
	h.links[0].Attrs().MasterIndex = 4
	h.nic(3, "Eth0_vf.0", "0000:03:00.2")
	h.virtual(&netlink.Bond{LinkAttrs: attrs(4, "BOND_1")})
	vlan := attrs(5, "Eth0.4094")
	vlan.ParentIndex = 2
	h.virtual(&netlink.Vlan{LinkAttrs: vlan, VlanId: 4094})
	h.virtual(&netlink.Bridge{LinkAttrs: attrs(6, "br_data.1")})
	return h
}

// virtio has a virtio network card with a virtual function: between the function and its link is the virtio device.
func virtio() *host {
	h := newHost()
	h.functionAt("devices/pci0000:00", "0000:00:04.0", "vendor=0x1af4", "device=0x1041", "numa_node=-1")
	h.sriov("0000:00:04.0", "0000:00:04.1")
	for i, function := range []string{"0000:00:04.0", "0000:00:04.1"} {
		h.nicOn(2+i, []string{"ens4", "ens4v0"}[i], h.real(function)+fmt.Sprintf("/virtio%d", i), "bus/virtio/drivers/virtio_net")
	}
	return h
}

// withoutPCI has a card on USB and one that the device tree describes.
func withoutPCI() *host {
	h := newHost()
	h.nicOn(2, "enx0242ac110002", "devices/pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0", "bus/usb/drivers/cdc_ether")
	h.nicOn(3, "end0", "devices/platform/soc/1e100000.ethernet", "bus/platform/drivers/dwmac")
	h.links[0].Attrs().HardwareAddr = []byte{2, 0x42, 0xac, 0x11, 0, 2}
	return h
}

func TestGeneratedMachines(t *testing.T) {
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			h := machine.make()
			facts, err := discovery.Read(t.Context(), h.quickSources())
			if err != nil {
				t.Fatal(err)
			}
			if machine.want != "" {
				check(t, facts, machine.want)
			}
			if len(h.sys) < 1000 { // fstest.MapFS looks at every file for each that does not exist
				if diff := cmp.Diff(read(t, h), facts); diff != "" {
					t.Errorf("another file system (-want +got):\n%s", diff)
				}
			}
			roundTrip(t, h.quickSources())
		})
	}
}

// byName returns a device of the facts.
func byName(t *testing.T, facts discovery.Facts, name discovery.IfName) discovery.Device {
	t.Helper()
	for _, d := range facts.Devices {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("there is no %s in\n%s", name, summary(facts))
	return discovery.Device{}
}

func TestReferenceNode(t *testing.T) {
	facts := read(t, referenceNode())
	type row struct {
		Speed, VFs, NUMA, MTU int
		RDMA                  []string
		Bridge                string
		Filtering             bool
	}
	got := map[discovery.IfName]row{}
	for _, name := range []discovery.IfName{"enp3s0f0", "enp3s0f1", "enp3s0f0v7", "br-data", "br-int", "eno1"} {
		d := byName(t, facts, name)
		got[name] = row{d.LinkSpeed, d.NumVFs, d.NUMANode, d.MTU, d.RDMADevices, d.BridgeType, d.VLANFiltering}
	}
	want := map[discovery.IfName]row{
		"enp3s0f0":   {Speed: 100000, VFs: 8, MTU: 1500, RDMA: []string{"mlx5_0"}},
		"enp3s0f1":   {Speed: 25000, VFs: 4, MTU: 1500, RDMA: []string{"mlx5_10"}},
		"enp3s0f0v7": {RDMA: []string{"mlx5_8"}},
		"br-data":    {NUMA: -1, MTU: 9000, Bridge: "linux", Filtering: true},
		"br-int":     {NUMA: -1, MTU: 1500, Bridge: "ovs"},
		"eno1":       {Speed: 1000, MTU: 1500},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestManyFunctions(t *testing.T) {
	facts, err := discovery.Read(t.Context(), manyFunctions(8, 128).quickSources())
	if err != nil || len(facts.Devices) != 8*129 || len(facts.Problems) > 0 || len(facts.Orphans) > 0 {
		t.Fatalf("%d devices, %d orphans, problems %v: %v", len(facts.Devices), len(facts.Orphans), facts.Problems, err)
	}
	for i := range 8 {
		for _, name := range []string{fmt.Sprintf("ens%d", i), fmt.Sprintf("ens%dv127", i)} {
			d := byName(t, facts, discovery.IfName(name))
			if d.NUMANode != i%2 || d.PCIeRoot != fmt.Sprintf("pci0000:%x0", i) && d.PCIeRoot != "pci0000:00" {
				t.Errorf("%s is on node %d, root %s", name, d.NUMANode, d.PCIeRoot)
			}
		}
	}
}

func TestRepresentors(t *testing.T) {
	facts := read(t, switchdev())
	for name, want := range map[discovery.IfName]bool{"eth0": true, "eth1": true, "eth2": true, "enp5s0f0np0": false} {
		d := byName(t, facts, name)
		if d.Representor != want || d.PortName == "" || d.SwitchID != "c2a9030042ab1e0c" {
			t.Errorf("%s: representor %v, port %q, switch %q", name, d.Representor, d.PortName, d.SwitchID)
		}
	}
}

func TestDriversAndRootsWithoutPCI(t *testing.T) {
	facts := read(t, withoutPCI())
	usb, platform := byName(t, facts, "enx0242ac110002"), byName(t, facts, "end0")
	got := []any{usb.Driver, usb.PCIeRoot, usb.NUMANode, platform.Driver, platform.PCIeRoot}
	if diff := cmp.Diff([]any{"cdc_ether", "pci0000:00", -1, "dwmac", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	vf := byName(t, read(t, virtio()), "ens4v0")
	if vf.Driver != "virtio_net" || vf.NUMANode != -1 || path.Base(string(vf.PFAddress)) != "0000:00:04.0" {
		t.Errorf("virtual function of virtio: %+v", vf)
	}
}
