package discovery_test

import (
	"fmt"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// machines contains generated machines, each modeling a particular property of real machines.
var machines = map[string]struct {
	make func() *discoverytest.Host
	want string // see summary; not compared if empty
}{
	"sriov": {make: discoverytest.SRIOV, want: `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`},
	"reference node": {make: discoverytest.ReferenceNode, want: `
br-data bridge
br-int ovs-internal
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
ovn-k8s-mp0 ovs-internal
`},
	"8 x 128": {make: func() *discoverytest.Host { return discoverytest.Machine(8, 128) }},
	"vf in a bridge": {make: discoverytest.EnslavedFunction, want: `
br0 bridge
eth0 pf pci=0000:03:00.0
eth0v0 vf if=eth1 pci=0000:03:00.2 pf=eth0 master=br0
`},
	"switchdev": {make: discoverytest.Switchdev, want: `
enp5s0f0np0 pf pci=0000:05:00.0
enp5s0f0np0v0 vf pci=0000:05:00.2 pf=enp5s0f0np0
eth0 nic
eth1 nic
eth2 nic
`},
	"open vswitch below the node's address": {make: discoverytest.OpenVSwitch, want: `
br-ex ovs-internal infrastructure
eno1 nic pci=0000:01:00.0 master=ovs-system infrastructure
eno2 nic pci=0000:02:00.0
ovs-system ovs-datapath
`},
	"names": {make: discoverytest.OddNames, want: `
BOND_1 bond
Eth0 pf pci=0000:03:00.0 master=BOND_1
Eth0.4094 vlan parent=Eth0
Eth0v0 vf if=Eth0_vf.0 pci=0000:03:00.2 pf=Eth0
br_data.1 bridge
`},
	"rdma": {make: discoverytest.RDMA, want: `
bond0 bond
bond0.7 vlan parent=bond0
enp3s0f0 pf pci=0000:03:00.0 master=bond0
enp3s0f0v0 vf pci=0000:03:00.2 pf=enp3s0f0
enp3s0f1 nic pci=0000:03:00.1 master=bond0
ib0 nic pci=0000:07:00.0
v0 veth
v1 veth
`},
	"infiniband": {make: discoverytest.InfiniBand, want: `
eno1 nic pci=0000:0b:00.0 infrastructure
pci-0000-1a-00-0 nic pci=0000:1a:00.0
pci-0000-9c-00-0 nic pci=0000:9c:00.0
`},
	"virtio": {make: discoverytest.Virtio, want: `
ens4 pf pci=0000:00:04.0
ens4v0 vf pci=0000:00:04.1 pf=ens4
`},
	"without pci": {make: discoverytest.WithoutPCI, want: `
end0 nic
enx0242ac110002 nic
`},
}

func TestGeneratedMachines(t *testing.T) {
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			h := machine.make()
			facts, err := discovery.Read(t.Context(), h.Sources())
			if err != nil {
				t.Fatal(err)
			}
			if machine.want != "" {
				check(t, facts, machine.want)
			}
			if len(h.Sys.Files) < 1000 { // fstest.MapFS scans all files for each missing file
				if diff := cmp.Diff(facts, readFrom(t, onSys(h.Sources(), mapFS(h.Sys)))); diff != "" {
					t.Errorf("facts from another file system (-want +got):\n%s", diff)
				}
			}
			roundTrip(t, h.Sources())
		})
	}
}

// byName returns the device with the given name.
func byName(t *testing.T, facts discovery.Facts, name discovery.IfName) discovery.Device {
	t.Helper()
	for _, d := range facts.Devices {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no device %s in\n%s", name, summary(facts))
	return discovery.Device{}
}

func TestReferenceNode(t *testing.T) {
	facts := read(t, discoverytest.ReferenceNode())
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
		"enp3s0f1":   {Speed: 25000, VFs: 4, MTU: 1500, RDMA: []string{"mlx5_9"}},
		"enp3s0f0v7": {Speed: 100000, MTU: 1500, RDMA: []string{"mlx5_8"}},
		"br-data":    {NUMA: -1, MTU: 9000, Bridge: "linux", Filtering: true},
		"br-int":     {NUMA: -1, MTU: 1500, Bridge: "ovs"},
		"eno1":       {Speed: 1000, MTU: 1500},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestManyFunctions(t *testing.T) {
	facts, err := discovery.Read(t.Context(), discoverytest.Machine(8, 128).Sources())
	if err != nil || len(facts.Devices) != 8*129 || len(facts.Problems) > 0 || len(facts.Orphans) > 0 {
		t.Fatalf("%d devices, %d orphans, problems %v: %v", len(facts.Devices), len(facts.Orphans), facts.Problems, err)
	}
	for i := range 8 {
		for _, name := range []string{fmt.Sprintf("ens%d", i), fmt.Sprintf("ens%dv127", i)} {
			d := byName(t, facts, discovery.IfName(name))
			if d.NUMANode != i%2 || d.PCIeRoot != fmt.Sprintf("pci0000:%x0", i) && d.PCIeRoot != "pci0000:00" {
				t.Errorf("%s has the wrong NUMA node %d or PCIe root %s", name, d.NUMANode, d.PCIeRoot)
			}
		}
	}
}

func TestRepresentors(t *testing.T) {
	facts := read(t, discoverytest.Switchdev())
	for name, want := range map[discovery.IfName]bool{"eth0": true, "eth1": true, "eth2": true, "enp5s0f0np0": false} {
		d := byName(t, facts, name)
		if d.Representor != want || d.PortName == "" || d.SwitchID != "c2a9030042ab1e0c" {
			t.Errorf("%s: representor = %v, port = %q, switch = %q", name, d.Representor, d.PortName, d.SwitchID)
		}
	}
}

func TestDriversAndRootsWithoutPCI(t *testing.T) {
	facts := read(t, discoverytest.WithoutPCI())
	usb, platform := byName(t, facts, "enx0242ac110002"), byName(t, facts, "end0")
	got := []any{usb.Driver, usb.PCIeRoot, usb.NUMANode, platform.Driver, platform.PCIeRoot}
	if diff := cmp.Diff([]any{"cdc_ether", "pci0000:00", -1, "dwmac", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	vf := byName(t, read(t, discoverytest.Virtio()), "ens4v0")
	if vf.Driver != "virtio_net" || vf.NUMANode != -1 || path.Base(string(vf.PFAddress)) != "0000:00:04.0" {
		t.Errorf("wrong virtio virtual function: %+v", vf)
	}
}

// NUMA nodes in the same socket at the same distance are listed, starting with the function's own node. There is no
// such list if the machine does not report distances or has only one node.
func TestNUMANodes(t *testing.T) {
	for name, test := range map[string]struct {
		distances, sockets [4]string
		want               []int
	}{
		"two sockets of two nodes": {[4]string{"10 12 21 21", "12 10 21 21", "21 21 10 12", "21 21 12 10"},
			[4]string{"0", "0", "1", "1"}, []int{1, 0}},
		"four sockets":         {[4]string{2: "x", 1: "20 10 20 20"}, [4]string{"0", "1", "2", "3"}, nil},
		"no distances":         {[4]string{}, [4]string{}, nil},
		"distances of nothing": {[4]string{1: "ten"}, [4]string{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := discoverytest.SRIOV()
			h.WriteFiles(pfDir, "numa_node=1")
			for i := range 4 {
				if node := fmt.Sprintf("devices/system/node/node%d", i); test.distances[i] != "" {
					h.WriteFiles(node, "distance="+test.distances[i])
				}
				if test.sockets[i] != "" {
					h.WriteFiles(fmt.Sprintf("devices/system/node/node%d", i), fmt.Sprintf("cpulist=%d", i))
					h.WriteFiles(fmt.Sprintf("devices/system/cpu/cpu%d/topology", i), "physical_package_id="+test.sockets[i])
				}
			}
			facts := read(t, h)
			if diff := cmp.Diff(test.want, byName(t, facts, "enp3s0f0").NUMANodes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			roundTrip(t, h.Sources())
		})
	}
}
