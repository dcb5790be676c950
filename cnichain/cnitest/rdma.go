package cnitest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// rdmaDevice is an RDMA device. Like real hardware, it stays in its namespace when its link moves.
type rdmaDevice struct {
	name    string
	link    string // on the host
	address string
	netns   string // a pin, or empty for the host's namespace
	// protocol is roce if empty.
	protocol string
	// number is the number in the name of the RDMA device's character device. A move frees it and assigns the lowest
	// free number.
	number int
}

// AddRDMA creates an RDMA device for a link on the host and a PCI function, which may be empty. mode sets the node's
// RDMA mode: cnichain.RDMAShared or RDMAExclusive.
func (n *Node) AddRDMA(name, link, address, mode string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rdmaMode = mode
	n.rdma[uint32(n.next())] = &rdmaDevice{name: name, link: link, address: address, number: n.freeNumber()}
}

// SetRDMAProtocol changes the protocol of an RDMA device.
func (n *Node) SetRDMAProtocol(name, protocol string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, device := range n.rdma {
		if device.name == name {
			device.protocol = protocol
		}
	}
}

// RemoveRDMA removes an RDMA device from whichever namespace it is in, as unloading its module does.
func (n *Node) RemoveRDMA(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.rdma, func(_ uint32, device *rdmaDevice) bool { return device.name == name })
}

// RDMAIn lists the names of the RDMA devices in a network namespace. An empty path refers to the host's namespace.
func (n *Node) RDMAIn(netns string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []string
	for _, device := range n.rdmaIn(netns) {
		names = append(names, device.Name)
	}
	return names
}

// RDMAMode implements host.Host.
func (n *Node) RDMAMode() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rdmaMode, nil
}

// RDMADevices implements host.Host.
func (n *Node) RDMADevices(netns string) ([]cnichain.RDMADevice, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	devices := n.rdmaIn(netns)
	for i := range devices {
		devices[i].Links = nil
	}
	return devices, n.fail["rdma list"]
}

// RDMAPorts implements host.Host.
func (n *Node) RDMAPorts() ([]cnichain.RDMADevice, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rdmaIn(""), cmp.Or(n.fail["rdma ports"], n.fail["rdma list"])
}

// SwapRDMA swaps the indexes and numbers of two RDMA devices. This can happen when all RDMA modules are reloaded,
// because the kernel then starts numbering from 0 again.
func (n *Node) SwapRDMA(name, another string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var swapped []uint32
	for index, device := range n.rdma {
		if device.name == name || device.name == another {
			swapped = append(swapped, index)
		}
	}
	a, b := n.rdma[swapped[0]], n.rdma[swapped[1]]
	a.number, b.number = b.number, a.number
	n.rdma[swapped[0]], n.rdma[swapped[1]] = b, a
}

// RenameRDMA renames an RDMA device in whichever namespace it is.
func (n *Node) RenameRDMA(name, wanted string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, device := range n.rdma {
		if device.name == name {
			device.name = wanted
		}
	}
}

// RenumberRDMA changes an RDMA device's number, as if another process had moved the device to another namespace and
// back.
func (n *Node) RenumberRDMA(name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, device := range n.rdma {
		if device.name == name {
			device.number = number
		}
	}
}

// rdmaIn returns the RDMA devices that are visible in a namespace. As in the kernel (nldev.c, fill_port_info), all
// devices are visible in every namespace in shared mode, but each namespace lists only its own links.
func (n *Node) rdmaIn(netns string) []cnichain.RDMADevice {
	var devices []cnichain.RDMADevice
	for _, index := range slices.Sorted(maps.Keys(n.rdma)) {
		device := n.rdma[index]
		if n.rdmaMode == cnichain.RDMAExclusive && device.netns != netns {
			continue
		}
		seen := cnichain.RDMADevice{Index: index, Name: device.name, Ports: 1, Protocol: cmp.Or(device.protocol, "roce")}
		links := n.host
		if netns != "" {
			links = n.pods[netns]
		} else {
			seen.PCIAddress = device.address
		}
		if link, found := links[device.link]; found {
			seen.Links = []int{link.Index}
		}
		devices = append(devices, seen)
	}
	return devices
}

// MoveRDMA implements host.Host.
func (n *Node) MoveRDMA(netns string, device cnichain.RDMADevice) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.moveRDMA("", device.Index, netns, "rdma move")
}

// ReturnRDMA implements host.Host.
func (n *Node) ReturnRDMA(netns string, device cnichain.RDMADevice) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found := n.rdma[device.Index]; found == nil || found.netns != netns {
		return nil
	}
	return n.moveRDMA(netns, device.Index, "", "rdma return")
}

func (n *Node) moveRDMA(source string, index uint32, netns, call string) error {
	if err := n.fail[call]; err != nil {
		return err
	}
	device := n.rdma[index]
	switch {
	case n.rdmaMode != cnichain.RDMAExclusive:
		return unix.EOPNOTSUPP
	case device != nil && device.netns == netns:
		return nil
	case device == nil || device.netns != source:
		return unix.ENODEV
	}
	device.netns, device.number = netns, -1
	device.number = n.freeNumber()
	return n.fail[call+" after"]
}

func (n *Node) freeNumber() int {
	taken := map[int]bool{}
	for _, device := range n.rdma {
		taken[device.number] = true
	}
	for number := 0; ; number++ {
		if !taken[number] {
			return number
		}
	}
}

// RDMANodes implements host.Host.
func (n *Node) RDMANodes(netns string, devices []cnichain.RDMADevice, management bool) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := []string{"/dev/infiniband/rdma_cm"}
	for _, asked := range devices {
		device := n.rdma[asked.Index]
		if device == nil || n.rdmaMode == cnichain.RDMAExclusive && device.netns != netns {
			return nil, unix.ENODEV
		}
		nodes = append(nodes, fmt.Sprintf("/dev/infiniband/uverbs%d", device.number))
		if management {
			nodes = append(nodes, fmt.Sprintf("/dev/infiniband/umad%d", device.number))
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// RDMANames implements host.Host.
func (n *Node) RDMANames() (names []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, index := range slices.Sorted(maps.Keys(n.rdma)) {
		names = append(names, n.rdma[index].name)
	}
	return names, n.fail["rdma names"]
}

// returnRDMA does what the kernel does when a namespace is destroyed.
func (n *Node) returnRDMA(pin string) {
	for _, index := range slices.Sorted(maps.Keys(n.rdma)) {
		device := n.rdma[index]
		if device.netns != pin || pin == "" {
			continue
		}
		for _, other := range n.rdma {
			if other.netns == "" && other.name == device.name {
				device.name = fmt.Sprintf("ibdev%d", index)
				break
			}
		}
		device.netns = ""
	}
}

func (n *Node) restoreRDMA(device *cnichain.Device) error {
	for _, moved := range device.Moved {
		found := n.rdma[moved.Index]
		if found == nil || found.netns != "" {
			return fmt.Errorf("cannot restore device %s: its RDMA device %s is not on the host",
				device.Name, moved.Name)
		}
		found.name = moved.Name
	}
	return nil
}
