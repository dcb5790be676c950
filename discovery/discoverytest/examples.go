package discoverytest

import (
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// ReferenceNode returns the node in section 6 of the published design: a dual-port RDMA NIC with 8 and 4 virtual
// functions, a data bridge, a NIC for the node itself, and Open vSwitch for the cluster network.
func ReferenceNode() *Host {
	h := NewHost()
	h.nic(firstPort(), 8)
	h.nic(secondPort(), 4)
	h.cluster()
	h.dataBridge("br-data")
	h.Netlink.RDMANetns = discovery.RDMAShared
	return h
}

// Examples returns the nodes from the examples in the published design, keyed by the names of their golden files in
// slices/testdata: example1 to example9, and reference-node. The golden files contain the nodes' slices.
func Examples() map[string]*Host {
	examples := map[string]*Host{
		"example1": withNIC(firstPort(), 2), "example2": withNIC(firstPort(), 2),
		"example3": withNIC(secondPort(), 0), "example4": withNIC(secondPort(), 0),
		"example5": withNIC(firstPort(), 0), "example6": withNIC(firstPort(), 8),
		"example7": withNIC(firstPort(), 2), "example8": NewHost(), "example9": withNIC(accelerated(), 2),
		"reference-node": ReferenceNode(),
	}
	h := examples["example7"]
	h.dataBridge("br-sriov-data")
	h.Enslave("enp3s0f0v1", "br-sriov-data")

	h = examples["example8"]
	h.cluster()
	h.openVSwitch("breth0")
	h.Function("0000:03:00.0")
	h.NIC("eno2", "0000:03:00.0")
	h.Speed("eno2", 1000)
	h.Link("eno2").MAC = "02:00:00:00:00:01"

	examples["example9"].nic(localnet(), 0)
	return examples
}

// port is a NIC port on one of the nodes in the published design.
type port struct {
	name, address string
	// bus is the PCI bus that the virtual functions are on, and first is the number of the first virtual function on
	// that bus.
	bus, first int
	// speed is in Mbit/s.
	speed, numaNode int
	// mac is empty if the design does not specify it.
	mac string
}

// The ports in the published design. The virtual functions of a NIC's second port come after the eight functions of the
// first port.

func firstPort() port {
	return port{"enp3s0f0", "0000:03:00.0", 0x03, 2, 100000, 0, "04:3f:72:b0:d4:60"}
}

func secondPort() port {
	return port{"enp3s0f1", "0000:03:00.1", 0x03, 10, 25000, 0, "04:3f:72:b0:d4:61"}
}

func accelerated() port { return port{"enp4s0f0", "0000:04:00.0", 0x04, 2, 100000, 0, ""} }

func localnet() port { return port{"enp6s0f0", "0000:06:00.0", 0x06, 2, 25000, 1, ""} }

// withNIC returns a machine with a NIC that has a single port.
func withNIC(p port, vfs int) *Host {
	h := NewHost()
	h.nic(p, vfs)
	return h
}

// nic adds one port of a ConnectX NIC, with RDMA and the given number of virtual functions. As in the design, the
// virtual functions also have interfaces and RDMA devices, but no addresses.
func (h *Host) nic(p port, vfs int) {
	h.Function(p.address, fmt.Sprintf("numa_node=%d", p.numaNode))
	addresses := addressesFrom(p.bus, p.first, vfs)
	h.VirtualFunctions(p.address, addresses...)
	names := []string{p.name}
	for i := range vfs {
		names = append(names, fmt.Sprintf("%sv%d", p.name, i))
	}
	for i, address := range append([]string{p.address}, addresses...) {
		h.NIC(names[i], address)
		h.Speed(names[i], p.speed)
		h.RDMA(address, fmt.Sprintf("mlx5_%d", len(h.Netlink.RDMADevices)))
		h.Link(names[i]).MAC = ""
	}
	h.Link(p.name).MAC = p.mac
	h.Link(p.name).VFs = slices.Repeat([]discovery.VFSettings{{SpoofCheck: true, LinkState: "auto"}}, vfs)
}

// cluster adds the NIC with the node's address, and the Open vSwitch cluster network.
func (h *Host) cluster() {
	h.Function("0000:01:00.0", "vendor=0x8086", "device=0x1521")
	h.NIC("eno1", "0000:01:00.0")
	h.Speed("eno1", 1000)
	h.DefaultRoute("eno1")
	h.openVSwitch("br-int")
	h.openVSwitch("ovn-k8s-mp0")
}

// openVSwitch adds an Open vSwitch bridge or internal port.
func (h *Host) openVSwitch(name string) {
	h.Virtual(discovery.RecordedLink{Name: name, Kind: kindOpenVSwitch})
}

// dataBridge adds a bridge as an administrator would create it for pods, with its own address.
func (h *Host) dataBridge(name string) {
	h.Virtual(discovery.RecordedLink{Name: name, Kind: "bridge", MTU: 9000, MAC: "02:00:00:00:00:02",
		VLANFiltering: true})
}

// InfiniBand returns a machine with a NIC and two InfiniBand adapters without IPoIB: the adapters have RDMA devices,
// but no interfaces. Their ports belong to different partitions.
func InfiniBand() *Host {
	h := NewHost()
	h.Netlink.RDMANetns = discovery.RDMAShared
	h.management("devices/pci0000:00/0000:00:10.0", "0000:0b:00.0", "eno1")
	for i, address := range []string{"0000:1a:00.0", "0000:9c:00.0"} {
		h.Function(address, "class=0x020700", "device=0x1021")
		name := fmt.Sprintf("mlx5_%d", i)
		h.RDMA(address, name)
		h.Netlink.RDMADevices[i].LinkLayer = discovery.RDMAInfiniBand
		h.RDMAPort(address, name, "link_layer=InfiniBand", "state=4: ACTIVE", "rate=400 Gb/sec (4X NDR)",
			fmt.Sprintf("gids/0=fe80:0000:0000:0000:0002:c903:00a1:b2c%d", i),
			"pkeys/0=0x7fff", "pkeys/1=0x0000", fmt.Sprintf("pkeys/2=0x800%d", i+1), "pkeys/3=0x0000")
	}
	return h
}
