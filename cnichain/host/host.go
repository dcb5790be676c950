// Package host is what the executor needs of a machine, and its implementation on Linux.
//
// The rule of this package: it moves, names and restores what it is told to, and decides nothing. What it changes it
// reads again: an operation that returns nil is proven, not assumed. It knows no plugin and no pod.
//
// The files of the implementation:
//
//	linux.go        namespaces: pins, links, how they are entered
//	find.go         which link is a device
//	baseline.go     how a device is before a claim takes it
//	return.go       the way of a device out of a pod
//	stacked.go      links that an application stacked on a device
//	restore.go      the way back to its baseline, with vf.go and network.go
//	driverbind.go   kernel drivers of PCI functions
//	rdma.go         RDMA devices, with verbs.go
//	placeholder.go  a namespace for a DEL whose interface is gone
package host

import (
	"net"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Host is what the executor needs of a machine. Implementations are safe for concurrent use, and never change the
// namespace of a thread that others may run on.
type Host interface {
	Namespaces
	Links
	Devices
	Functions
	RDMA
	RDMAMoves
	Verbs
}

// Namespaces keeps network namespaces reachable.
type Namespaces interface {
	// Pin keeps a network namespace reachable at pin, whatever its maker does. Pinning again is no error.
	Pin(netns, pin string) error
	// Unpin undoes Pin; it is no error when there is nothing.
	Unpin(pin string) error
	// Exists is true if there is a network namespace at pin.
	Exists(pin string) bool
	// NamespaceID tells the network namespace at a path from all others that exist.
	NamespaceID(path string) (string, error)
	// PlaceholderNetns makes a network namespace at a path, with one link that has a name and addresses: for plugins
	// whose DEL finds out from the interface what to remove elsewhere, when the interface is gone. Unpin removes it.
	PlaceholderNetns(path, name string, addresses []net.IPNet) error
}

// Links works on the links of a pod's network namespace, which a path names.
type Links interface {
	// Links returns the links in the namespace.
	Links(netns string) ([]cnichain.Link, error)
	// Enter returns the namespace, to list its links several times. The caller closes it.
	Enter(netns string) (Namespace, error)
	// Rename gives a link another name.
	Rename(netns string, index int, name string) error
	// Remove deletes a virtual link. One that is not there is no error.
	Remove(netns string, index int) error
	// ResetInPod makes a device as it was seen in the namespace after ADD: without a master, with its alias, with only
	// the alternative names of its baseline, and with its address. What an application has done to a device must not
	// keep it from returning to the host.
	ResetInPod(netns string, seen cnichain.Link, device cnichain.Device) error
	// Isolate moves a link of a pod into a network namespace at target, which it makes if there is none, so that no
	// process of the pod can change the link any more. The link keeps its index and gets a name; its alternative names
	// are removed. It returns the link as it is there. A link that is in target already only gets its name.
	Isolate(netns string, index int, target, name string) (cnichain.Link, error)
	// RemoveStacked deletes the links of a namespace that are stacked on a link of the namespace at lower, such as
	// VLANs and macvlans that an application made.
	RemoveStacked(netns, lower string, index int) error
	// MoveToHost moves the link that is the device to the host's namespace, under whatever name; Restore does the rest.
	MoveToHost(netns string, index int, device cnichain.Device) error
}

// Namespace is a network namespace that stays the same one, and stays there, until it is closed: what becomes of its
// path does not matter. It is for one goroutine.
type Namespace interface {
	// Links returns the links in the namespace.
	Links() ([]cnichain.Link, error)
	Close()
}

// Devices returns devices to the host.
type Devices interface {
	// Boot returns the ID of the kernel's boot.
	Boot() (string, error)
	// Snapshot returns the device with its baseline as it is now: names, index, MAC, MTU, state, driver, and what a
	// physical function keeps of a virtual one. A device that is not on the host is an error that is os.ErrNotExist.
	Snapshot(cnichain.Device) (cnichain.Device, error)
	// Destroyed reports whether a virtual device does not exist any more in any namespace. It is not known for all
	// kinds of links.
	Destroyed(cnichain.Device) (destroyed, known bool, err error)
	// OnHost is true if a device is in the host's namespace. It changes nothing. A virtual device whose baseline is of
	// another boot was not moved in this one, and is there if it exists at all.
	OnHost(cnichain.Device) (bool, error)
	// Restore proves that a device is in the host's namespace and as its baseline says, and changes what is not. A
	// device that is not there is an error that is os.ErrNotExist. With a baseline of another boot it changes no
	// link: it only returns a PCI function to its driver.
	Restore(cnichain.Device) error
}

// RDMA looks at RDMA devices.
type RDMA interface {
	// RDMAMode returns cnichain.RDMAShared or RDMAExclusive; empty where the kernel has no RDMA devices.
	RDMAMode() (string, error)
	// RDMADevices lists the RDMA devices that a network namespace shows, by name and without links; an empty path is
	// the host's, of which they have their PCI addresses. A kernel without RDMA has none. It asks no hardware.
	RDMADevices(netns string) ([]cnichain.RDMADevice, error)
	// RDMAPorts lists those of the host with the links of their ports, of which drivers may ask their cards.
	RDMAPorts() ([]cnichain.RDMADevice, error)
	// RDMANodes returns the device nodes by which an application uses RDMA devices that a network namespace shows (an
	// empty path is the host's), sorted; management includes those for management datagrams. What the numbers in their
	// names are changes with every move.
	RDMANodes(netns string, devices []cnichain.RDMADevice, management bool) ([]string, error)
	// RDMANames lists the names of the node's RDMA devices, whatever namespace they are in, one for each device: where
	// they belong to namespaces, several may have the same.
	RDMANames() ([]string, error)
}

// RDMAMoves moves RDMA devices between network namespaces.
type RDMAMoves interface {
	// MoveRDMA moves an RDMA device of the host into a network namespace. One that is there already is no error.
	MoveRDMA(netns string, device cnichain.RDMADevice) error
	// ReturnRDMA moves an RDMA device of a network namespace to the host, under whatever name; Restore does the rest.
	// One that is not there is no error.
	ReturnRDMA(netns string, device cnichain.RDMADevice) error
}

// Verbs looks at what applications address RDMA devices by.
type Verbs interface {
	// VerbsDevice returns the character device of an RDMA device that a network namespace shows (an empty path is the
	// host's), such as uverbs0, and the entries of its tables of GIDs that are not empty. The kernel adds GIDs some
	// time after the addresses that they stand for. It asks no hardware.
	VerbsDevice(netns string, device cnichain.RDMADevice) (verbs string, table []cnichain.GIDEntry, err error)
	// Addresses returns the links of a pod's network namespace with their addresses.
	Addresses(netns string) ([]cnichain.LinkAddresses, error)
}

// Functions works on PCI functions.
type Functions interface {
	// BindDriver binds a device to the driver BindTo, unless it is, and returns the device nodes that an application
	// needs to use it. Restore undoes it.
	BindDriver(cnichain.Device) (nodes []string, err error)
	// FreeAddress lets a virtual function that is on the host take other addresses than its own, where that was ended
	// by whoever had it before. Restore does it, too.
	FreeAddress(cnichain.Device) error
	// Gone is true if the machine does not have the hardware any more: it was removed, or its physical function has
	// made its virtual ones anew. It is false for virtual links.
	Gone(cnichain.Device) bool
}
