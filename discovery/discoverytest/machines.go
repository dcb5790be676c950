package discoverytest

import (
	"fmt"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Machine returns a machine with the given number of physical functions on two NUMA nodes, each with the given number
// of virtual functions. The physical functions are named ens0, ens1 and so on. All functions have interfaces. The PCI
// addresses suffice for 15 physical functions with 1,024 virtual functions each.
func Machine(pfs, vfsPerPF int) *Host {
	h := NewHost()
	for i := range pfs {
		bus := 0x10*i + 3
		pf := fmt.Sprintf("0000:%02x:00.0", bus)
		h.FunctionBelow(fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.0", bus-3, bus-3), pf,
			fmt.Sprintf("numa_node=%d", i%2))
		addresses := addressesFrom(bus, 8, vfsPerPF)
		h.VirtualFunctions(pf, addresses...)
		name := fmt.Sprintf("ens%d", i)
		h.NIC(name, pf)
		for j, address := range addresses {
			h.NIC(fmt.Sprintf("%sv%d", name, j), address)
		}
	}
	return h
}

// addressesFrom returns count consecutive PCI addresses on a bus, starting at function number first (a bus has 32
// devices with 8 functions each).
func addressesFrom(bus, first, count int) []string {
	addresses := make([]string, 0, count)
	for n := first; n < first+count; n++ {
		addresses = append(addresses, fmt.Sprintf("0000:%02x:%02x.%d", bus+n/256, n%256/8, n%8))
	}
	return addresses
}

// SRIOV returns a machine with a bridge and a physical function with two virtual functions. The first virtual function
// has a VLAN and an address that were set through the physical function; the second has no interface.
func SRIOV() *Host {
	h := NewHost()
	h.Function("0000:03:00.0")
	h.VirtualFunctions("0000:03:00.0", "0000:03:00.2", "0000:03:00.3")
	h.NIC("enp3s0f0", "0000:03:00.0")
	h.NIC("eth7", "0000:03:00.2")
	h.Link("enp3s0f0").VFs = []discovery.VFSettings{
		{MAC: "02:00:00:00:03:02", VLAN: 100, QoS: 3, Trust: true, LinkState: "enable", MinTxRate: 100,
			MaxTxRate: 1000},
		{SpoofCheck: true, LinkState: "auto"},
	}
	h.Virtual(discovery.RecordedLink{Name: "br-data", Kind: "bridge", MTU: 9000, VLANFiltering: true})
	return h
}

// RDMA returns a machine with one RDMA device of each kind: mlx5_bond_0 on bond0, whose members are the two ports of a
// NIC (the device reports the first member as its link); mlx5_2 on a virtual function; ibp7s0 on an InfiniBand NIC; and
// rxe0 on one end of a veth pair. Each namespace has its own RDMA devices.
func RDMA() *Host {
	h := NewHost()
	h.Function("0000:03:00.0")
	h.Function("0000:03:00.1")
	h.Function("0000:07:00.0", "class=0x020700")
	h.VirtualFunctions("0000:03:00.0", "0000:03:00.2")
	h.NIC("enp3s0f0", "0000:03:00.0")
	h.NIC("enp3s0f1", "0000:03:00.1")
	h.NIC("enp3s0f0v0", "0000:03:00.2")
	h.NIC("ib0", "0000:07:00.0")
	h.Virtual(discovery.RecordedLink{Name: "bond0", Kind: "bond"})
	h.Enslave("enp3s0f0", "bond0")
	h.Enslave("enp3s0f1", "bond0")
	h.Virtual(discovery.RecordedLink{Name: "bond0.7", Kind: "vlan", Parent: h.Link("bond0").Index, VLANID: 7})
	h.Virtual(discovery.RecordedLink{Name: "v0", Kind: "veth"})
	h.Virtual(discovery.RecordedLink{Name: "v1", Kind: "veth"})
	h.RDMA("0000:03:00.0", "mlx5_bond_0")
	h.RDMA("0000:03:00.2", "mlx5_2")
	h.RDMA("0000:07:00.0", "ibp7s0")
	h.Netlink.RDMADevices[2].LinkLayer = discovery.RDMAInfiniBand
	h.RDMAOn("rxe0", "v0")
	h.Netlink.RDMANetns = discovery.RDMAExclusive
	return h
}

// EnslavedFunction returns a machine with a virtual function that is a port of a bridge.
func EnslavedFunction() *Host {
	h := NewHost()
	h.Function("0000:03:00.0")
	h.VirtualFunctions("0000:03:00.0", "0000:03:00.2")
	h.NIC("eth0", "0000:03:00.0")
	h.NIC("eth1", "0000:03:00.2")
	h.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
	h.Enslave("eth1", "br0")
	return h
}

// Switchdev returns a machine with a physical function in switchdev mode, with representors for the function itself
// (towards the host), for a virtual function and for a subfunction. The representors have lower indexes than the
// uplink.
func Switchdev() *Host {
	h := NewHost()
	h.Function("0000:05:00.0")
	h.VirtualFunctions("0000:05:00.0", "0000:05:00.2")
	for _, port := range [][2]string{{"eth0", "c1pf0"}, {"eth1", "pf0vf0"}, {"eth2", "pf0sf88"},
		{"enp5s0f0np0", "p0"}} {
		h.NIC(port[0], "0000:05:00.0")
		h.WriteFiles(h.Dir("0000:05:00.0")+"/net/"+port[0], "phys_port_name="+port[1],
			"phys_switch_id=c2a9030042ab1e0c")
	}
	h.Netlink.EswitchModes = map[discovery.PCIAddress]string{"0000:05:00.0": discovery.EswitchSwitchdev}
	return h
}

// ScalableFunctions returns a machine with a DPU. Each of its two ports has a representor for the host's function, and
// the first port also has two scalable functions with their representors. The mlx5 driver and udev use these names and
// addresses on such NICs.
func ScalableFunctions() *Host {
	h := NewHost()
	for port, address := range []string{"0000:03:00.0", "0000:03:00.1"} {
		h.Function(address, "vendor=0x15b3", "device=0xa2dc", "numa_node=1")
		for _, link := range [][2]string{{fmt.Sprintf("p%d", port), fmt.Sprintf("p%d", port)},
			{fmt.Sprintf("pf%dhpf", port), fmt.Sprintf("c1pf%d", port)}} {
			h.NIC(link[0], address)
			h.WriteFiles(h.Dir(address)+"/net/"+link[0], "phys_port_name="+link[1], "phys_switch_id=aa")
		}
	}
	for number := range 2 {
		representor := fmt.Sprintf("en3f0pf0sf%d", number)
		h.NIC(representor, "0000:03:00.0")
		h.WriteFiles(h.Dir("0000:03:00.0")+"/net/"+representor, fmt.Sprintf("phys_port_name=pf0sf%d", number),
			"phys_switch_id=aa")
		device := fmt.Sprintf("%s/mlx5_core.sf.%d", h.Dir("0000:03:00.0"), number+2)
		name := fmt.Sprintf("enp3s0f0s%d", number)
		h.NICOn(name, device, "bus/auxiliary/drivers/mlx5_core.sf")
		h.WriteFiles(device, fmt.Sprintf("sfnum=%d", number))
		h.RDMAOn(fmt.Sprintf("mlx5_%d", number+2), name)
	}
	return h
}

// OpenVSwitch returns a machine whose node address is on an Open vSwitch bridge with the NIC eno1 as a port.
func OpenVSwitch() *Host {
	h := NewHost()
	h.Function("0000:01:00.0")
	h.Function("0000:02:00.0")
	h.NIC("eno1", "0000:01:00.0")
	h.NIC("eno2", "0000:02:00.0")
	h.Virtual(discovery.RecordedLink{Name: "ovs-system", Kind: kindOpenVSwitch})
	h.Virtual(discovery.RecordedLink{Name: "br-ex", Kind: kindOpenVSwitch})
	h.Enslave("eno1", "ovs-system")
	h.DefaultRoute("br-ex")
	return h
}

// kindOpenVSwitch is the link kind of Open vSwitch bridges and internal ports.
const kindOpenVSwitch = "openvswitch"

// OddNames returns a machine with interface names that are not valid in Kubernetes or that sort differently when their
// digits are compared as numbers.
func OddNames() *Host {
	h := NewHost()
	h.Function("0000:03:00.0")
	h.VirtualFunctions("0000:03:00.0", "0000:03:00.2")
	h.NIC("Eth0", "0000:03:00.0")
	h.NIC("Eth0_vf.0", "0000:03:00.2")
	h.Virtual(discovery.RecordedLink{Name: "BOND_1", Kind: "bond"})
	h.Virtual(discovery.RecordedLink{Name: "Eth0.4094", Kind: "vlan", Parent: h.Link("Eth0").Index, VLANID: 4094})
	h.Virtual(discovery.RecordedLink{Name: "br_data.1", Kind: "bridge"})
	h.Enslave("Eth0", "BOND_1")
	return h
}

// Virtio returns a machine with a virtio NIC that has a virtual function. The virtio device sits between the PCI
// function and its link.
func Virtio() *Host {
	h := NewHost()
	h.FunctionBelow("devices/pci0000:00", "0000:00:04.0", "vendor=0x1af4", "device=0x1041", "numa_node=-1")
	h.VirtualFunctions("0000:00:04.0", "0000:00:04.1")
	h.NICOn("ens4", h.Dir("0000:00:04.0")+"/virtio0", "bus/virtio/drivers/virtio_net")
	h.NICOn("ens4v0", h.Dir("0000:00:04.1")+"/virtio1", "bus/virtio/drivers/virtio_net")
	return h
}

// WithoutPCI returns a machine with a USB NIC, which is named after its address, and a NIC from the device tree.
func WithoutPCI() *Host {
	h := NewHost()
	h.NICOn("enx0242ac110002", "devices/pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0", "bus/usb/drivers/cdc_ether")
	h.NICOn("end0", "devices/platform/soc/1e100000.ethernet", "bus/platform/drivers/dwmac")
	h.Link("enx0242ac110002").MAC = "02:42:ac:11:00:02"
	return h
}
