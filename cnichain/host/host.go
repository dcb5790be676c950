// Package host defines the operations on a machine that the executor needs, and implements them on Linux.
//
// The rule of this package: it moves, renames and restores as requested, and makes no decisions. It verifies every
// change by reading it back: if an operation returns nil, its result is proven, not assumed. It does not depend on
// plugins or pods.
//
// Files of the implementation:
//
//	linux.go        network namespaces: pins, sockets, links
//	find.go         finds the link of a device
//	baseline.go     reads the state of a device before a claim uses it
//	return.go       moves a device out of a pod
//	stacked.go      links that an application stacked on a device
//	restore.go      restores the baseline, with vf.go and network.go
//	driverbind.go   kernel drivers of PCI functions
//	rdma.go         RDMA devices, with verbs.go
//	placeholder.go  a namespace for a DEL whose interface no longer exists
package host

import (
	"net"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Host is the interface to a machine. Implementations are safe for concurrent use, and never change the network
// namespace of a thread on which other goroutines may run.
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
	// Pin keeps a network namespace reachable at pin, even if its creator removes the original path. It is not an error
	// if the pin exists.
	Pin(netns, pin string) error
	// Unpin removes a pin. It is not an error if the pin does not exist.
	Unpin(pin string) error
	// Exists reports whether there is a network namespace at pin.
	Exists(pin string) bool
	// NamespaceID returns an ID that distinguishes the network namespace at a path from all other existing ones.
	NamespaceID(path string) (string, error)
	// PlaceholderNetns creates a network namespace at a path, with one link that has the name and addresses. It is for
	// a DEL whose interface no longer exists: some plugins read from the interface which state to delete elsewhere.
	// Unpin removes the namespace.
	PlaceholderNetns(path, name string, addresses []net.IPNet) error
}

// Links works on the links of a pod's network namespace, which is identified by a path.
type Links interface {
	// Links returns the links in the namespace.
	Links(netns string) ([]cnichain.Link, error)
	// Enter opens the namespace, so that its links can be listed repeatedly. The caller closes it.
	Enter(netns string) (Namespace, error)
	// Rename changes the name of a link.
	Rename(netns string, index int, name string) error
	// Remove deletes a virtual link. It is not an error if the link does not exist.
	Remove(netns string, index int) error
	// ResetInPod resets a device to its state after ADD: no master, the alias that it had after ADD, only the
	// alternative names of its baseline, and the original MAC address of a virtual link. Changes of an application must
	// not prevent a device from returning to the host.
	ResetInPod(netns string, seen cnichain.Link, device cnichain.Device) error
	// Isolate moves a link of a pod into a network namespace at target, which it creates if necessary, so that
	// processes of the pod can no longer change the link. The link keeps its index and is renamed to name; its
	// alternative names are removed. Isolate returns the link as it is in target. A link that is already in target is
	// only renamed.
	Isolate(netns string, index int, target, name string) (cnichain.Link, error)
	// RemoveStacked deletes the links of a namespace that are stacked on a link of the namespace at lower, such as
	// VLANs and macvlans that an application created.
	RemoveStacked(netns, lower string, index int) error
	// MoveToHost moves the link of the device to the host's namespace, under any name; Restore does the rest.
	MoveToHost(netns string, index int, device cnichain.Device) error
}

// Namespace is an open network namespace. It refers to the same namespace, and keeps it alive, until it is closed,
// whatever happens to its path. It is not safe for concurrent use.
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
	// that a physical function stores for a virtual one. It returns os.ErrNotExist for a device that is not on the
	// host.
	Snapshot(cnichain.Device) (cnichain.Device, error)
	// Destroyed reports whether a virtual device no longer exists in any namespace. known is false for kinds of links
	// for which this cannot be determined.
	Destroyed(cnichain.Device) (destroyed, known bool, err error)
	// OnHost reports whether a device is in the host's namespace. It changes nothing. A virtual device with a baseline
	// of another boot was not moved in this boot, so it is on the host if it exists at all.
	OnHost(cnichain.Device) (bool, error)
	// Restore verifies that a device is in the host's namespace and matches its baseline, and corrects differences. It
	// returns os.ErrNotExist if the device is not there. With a baseline of another boot it changes no link: it only
	// returns a PCI function to its driver.
	Restore(cnichain.Device) error
}

// RDMA reads the state of RDMA devices.
type RDMA interface {
	// RDMAMode returns cnichain.RDMAShared or RDMAExclusive, or "" if the kernel does not support RDMA.
	RDMAMode() (string, error)
	// RDMADevices lists the RDMA devices of a network namespace, with their names and without links. An empty path is
	// the host's namespace, where devices also have PCI addresses. The list is empty if the kernel does not support
	// RDMA. RDMADevices does not query the hardware.
	RDMADevices(netns string) ([]cnichain.RDMADevice, error)
	// RDMAPorts lists the RDMA devices of the host and the network interface behind each port. Some drivers query the
	// hardware for this.
	RDMAPorts() ([]cnichain.RDMADevice, error)
	// RDMANodes returns the sorted device nodes through which an application uses RDMA devices of a network namespace
	// (an empty path is the host's). management includes the nodes for management datagrams. The numbers in the node
	// names change with every move.
	RDMANodes(netns string, devices []cnichain.RDMADevice, management bool) ([]string, error)
	// RDMANames returns one name for each RDMA device of the node, in whatever namespace it is. If RDMA devices belong
	// to namespaces, several devices may have the same name.
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

// Verbs reads the identifiers by which applications address RDMA devices.
type Verbs interface {
	// VerbsDevice returns the character device of an RDMA device in a network namespace (an empty path is the host's),
	// such as uverbs0, and the nonempty entries of its GID tables. The kernel adds a GID some time after its address.
	// VerbsDevice does not query the hardware.
	VerbsDevice(netns string, device cnichain.RDMADevice) (verbs string, table []cnichain.GIDEntry, err error)
	// Addresses returns the links of a pod's network namespace with their addresses.
	Addresses(netns string) ([]cnichain.LinkAddresses, error)
}

// Functions works on PCI functions.
type Functions interface {
	// BindDriver binds a device to the driver BindTo, unless it is already bound to it, and returns the device nodes
	// that an application needs to use the device. Restore undoes it.
	BindDriver(cnichain.Device) (nodes []string, err error)
	// FreeAddress lets a virtual function that is on the host accept MAC addresses other than its own again, if a
	// previous owner caused its driver to reject them. Restore does the same.
	FreeAddress(cnichain.Device) error
	// Gone reports whether the machine no longer has the hardware: it was removed, or its physical function has
	// recreated its virtual functions. It returns false for virtual links.
	Gone(cnichain.Device) bool
}
