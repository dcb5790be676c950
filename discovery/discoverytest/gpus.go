package discoverytest

import "fmt"

// GPUMachines returns two kinds of nodes, each with eight GPUs and eight NIC ports for them, keyed by the names of
// their recordings in discovery/testdata. The recordings are based on public documentation and were not made on real
// machines. They contain only network functions; tests define the GPU drivers' slices.
//
// h100 resembles a DGX H100 whose ConnectX-7 adapters are used as Ethernet NICs. It has two sockets and eight PCIe
// switches; each switch has its own root, with a GPU and that GPU's NIC below it. It also has two dual-port NICs for
// storage and a NIC for the node. The addresses and numbers of the NICs and their RDMA devices are from the machine's
// user guide; the bus numbers above them are invented. The GPUs are on the buses 1b, 43, 52, 61, 9d, c3, d1 and df.
//
// mi300x has GPUs at the addresses given in AMD's documentation for MI300X machines (05, 2b, 5b and 65; the addresses
// on the second socket, 85, ab, db and e5, are invented to match). Each GPU has its own root. Instead of one NIC per
// GPU, the machine has four dual-port NICs in slots that are connected to the processors; there is no GPU below the
// roots of these slots. On each NIC, the port with the higher address is cabled to the lower of the NIC's two rails.
// The machine does not report this cabling.
func GPUMachines() map[string]*Host {
	return map[string]*Host{"h100": h100(), "mi300x": mi300x()}
}

// networkFunction is a PCI function of a ConnectX-7 and its link.
type networkFunction struct {
	// bridge is the sysfs directory of the bridge above the function.
	bridge, address, link, rdma string
	numaNode, speed             int
}

func (h *Host) connectX7(f networkFunction) {
	h.FunctionBelow(f.bridge, f.address, "device=0x1021", fmt.Sprintf("numa_node=%d", f.numaNode),
		"sriov_totalvfs=16", "sriov_numvfs=0")
	h.NIC(f.link, f.address)
	h.Speed(f.link, f.speed)
	h.Link(f.link).MTU = 9000
	h.RDMA(f.address, f.rdma)
}

// management adds the NIC that has the Node object's address.
func (h *Host) management(bridge, address, link string) {
	h.FunctionBelow(bridge, address, "vendor=0x8086", "device=0x1563")
	h.Symlink(h.Dir(address)+"/driver", "bus/pci/drivers/ixgbe")
	h.NIC(link, address)
	h.Speed(link, 10000)
	h.DefaultRoute(link)
}

// h100 returns a machine with eight GPUs, each with its own PCIe switch and a NIC for its rail, and two dual-port
// storage NICs.
func h100() *Host {
	h := NewHost()
	h.Netlink.RDMANetns = "shared"
	h.management("devices/pci0000:00/0000:00:10.0", "0000:0b:00.0", "eno3")
	const rail, storage = 400000, 200000
	for _, nic := range []struct{ bus, ports, rdma, numaNode, speed int }{
		{0x18, 1, 0, 0, rail}, {0x29, 2, 1, 0, storage}, {0x40, 1, 3, 0, rail}, {0x4f, 1, 4, 0, rail},
		{0x5e, 1, 5, 0, rail}, {0x9a, 1, 6, 1, rail}, {0xaa, 2, 7, 1, storage}, {0xc0, 1, 9, 1, rail},
		{0xce, 1, 10, 1, rail}, {0xdc, 1, 11, 1, rail},
	} {
		// The switch's downstream port, to the NIC, is on the bus above the NIC. Its upstream port, to the processor,
		// is one bus further up.
		root := fmt.Sprintf("0000:%02x", nic.bus-3)
		bridge := fmt.Sprintf("devices/pci%s/%s:01.0/0000:%02x:00.0/0000:%02x:00.0", root, root, nic.bus-2, nic.bus-1)
		for port := range nic.ports {
			link := fmt.Sprintf("enp%ds0np0", nic.bus)
			if nic.ports > 1 {
				link = fmt.Sprintf("enp%ds0f%dnp%d", nic.bus, port, port)
			}
			h.connectX7(networkFunction{bridge: bridge, address: fmt.Sprintf("0000:%02x:00.%d", nic.bus, port),
				link: link, rdma: fmt.Sprintf("mlx5_%d", nic.rdma+port), numaNode: nic.numaNode, speed: nic.speed})
		}
	}
	return h
}

// mi300x returns a machine with eight GPUs and four dual-port NICs, where two GPUs share a NIC.
func mi300x() *Host {
	h := NewHost()
	h.Netlink.RDMANetns = "shared"
	h.management("devices/pci0000:10/0000:10:03.1", "0000:11:00.0", "eno1")
	for i, bus := range []int{0x31, 0x79, 0xb1, 0xf9} {
		root := fmt.Sprintf("0000:%02x", bus-1)
		for port := range 2 {
			h.connectX7(networkFunction{bridge: fmt.Sprintf("devices/pci%s/%s:01.1", root, root),
				address: fmt.Sprintf("0000:%02x:00.%d", bus, port),
				link:    fmt.Sprintf("enp%ds0f%dnp%d", bus, port, port), rdma: fmt.Sprintf("mlx5_%d", 2*i+port),
				numaNode: i / 2, speed: 200000})
		}
	}
	return h
}
