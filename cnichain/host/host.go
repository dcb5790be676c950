// Package host defines the operations on a machine that the executor needs, and implements them on Linux.
//
// The rule of this package: it moves, names and restores as requested, and decides nothing. It reads every change
// again: an operation that returns nil is proven, not assumed. It does not depend on plugins or pods.
//
// Files of the implementation:
//
//	linux.go        namespaces: pins, links, entering them
//	find.go         finds the link of a device
//	baseline.go     the state of a device before a claim takes it
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

// Host is the interface to a machine. Implementations are safe for concurrent use, and never change the namespace of a
// thread that other goroutines may run on.
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
	// Pin keeps a network namespace reachable at pin, even if its creator removes its own path. It is not an error if
	// the pin exists.
	Pin(netns, pin string) error
	// Unpin removes a pin; it is not an error if there is none.
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
	// Remove deletes a virtual link. It is not an error if the link does not exist.
	Remove(netns string, index int) error
	// ResetInPod resets a device to its state after ADD: without a master, with its alias, with only the alternative
	// names of its baseline, and with its address. Changes of an application must not prevent a device from returning
	// to the host.
	ResetInPod(netns string, seen cnichain.Link, device cnichain.Device) error
	// Isolate moves a link of a pod into a network namespace at target, which it creates if necessary, so that no
	// process of the pod can change the link any longer. The link keeps its index and gets a name; its alternative
	// names are removed. It returns the link in its new place. A link that is already in target only gets its name.
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
	// Snapshot returns the device with its current baseline: names, index, MAC, MTU, state, driver, and the settings
	// that a physical function stores for a virtual one. The error for a device that is not on the host is
	// os.ErrNotExist.
	Snapshot(cnichain.Device) (cnichain.Device, error)
	// Destroyed reports whether a virtual device no longer exists in any namespace. known is false for kinds of links
	// for which this cannot be determined.
	Destroyed(cnichain.Device) (destroyed, known bool, err error)
	// OnHost reports whether a device is in the host's namespace. It changes nothing. A virtual device with a baseline
	// of another boot was not moved in this one, and is on the host if it exists at all.
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
	// RDMADevices lists the RDMA devices of a network namespace, by name and without links. An empty path is the host's
	// namespace, where they have their PCI addresses. A kernel without RDMA has none. It does not query the hardware.
	RDMADevices(netns string) ([]cnichain.RDMADevice, error)
	// RDMAPorts lists the RDMA devices of the host and the network interface behind each port. Some drivers query the
	// hardware for this.
	RDMAPorts() ([]cnichain.RDMADevice, error)
	// RDMANodes returns the device nodes through which an application uses RDMA devices of a network namespace (an
	// empty path is the host's), sorted; management includes the nodes for management datagrams. The numbers in their
	// names change with every move.
	RDMANodes(netns string, devices []cnichain.RDMADevice, management bool) ([]string, error)
	// RDMANames lists the names of the node's RDMA devices, whatever namespace they are in, one for each device: where
	// they belong to namespaces, several may have the same.
	RDMANames() ([]string, error)
}

// RDMAMoves moves RDMA devices between network namespaces.
type RDMAMoves interface {
	// MoveRDMA moves an RDMA device of the host into a network namespace. It is not an error if the device is already
	// there.
	MoveRDMA(netns string, device cnichain.RDMADevice) error
	// ReturnRDMA moves an RDMA device of a network namespace to the host, under any name; Restore does the rest. It is
	// not an error if the device is missing.
	ReturnRDMA(netns string, device cnichain.RDMADevice) error
}

// Verbs looks at what applications address RDMA devices by.
type Verbs interface {
	// VerbsDevice returns the character device of an RDMA device in a network namespace (an empty path is the host's),
	// such as uverbs0, and the nonempty entries of its tables of GIDs. The kernel adds GIDs some time after their
	// addresses. It does not query the hardware.
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
	// Gone reports whether the machine no longer has the hardware: it was removed, or its physical function has created
	// its virtual ones again. It is false for virtual links.
	Gone(cnichain.Device) bool
}
