// Package host defines the operations that the executor performs on a machine, and implements them for Linux.
//
// Invariant: it moves, renames and restores as requested, and makes no decisions. It verifies every
// change by reading it back: if an operation returns nil, its result is proven, not assumed. It does not depend on
// plugins or pods.
//
// Implementation files:
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
// namespace of a thread that may run other goroutines.
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
	// if the pin already exists.
	Pin(netns, pin string) error
	// Unpin removes a pin. It is not an error if the pin does not exist.
	Unpin(pin string) error
	// Exists reports whether there is a network namespace at pin.
	Exists(pin string) bool
	// HoldNamespace keeps the network namespace at a path alive until release is called. Until then, the returned path,
	// held, refers to this namespace.
	HoldNamespace(path string) (held string, release func(), err error)
	// NamespaceID returns an ID that is unique among the network namespaces that currently exist.
	NamespaceID(path string) (string, error)
	// PlaceholderNetns creates a network namespace at a path, containing one link with the given name and addresses. It
	// is used for a DEL whose interface no longer exists: some plugins use the interface's properties to find state
	// that they have to delete elsewhere. Unpin removes the namespace.
	PlaceholderNetns(path, name string, addresses []net.IPNet) error
}

// Contents is the part of a pod's network namespace that the steps of a chain change.
type Contents struct {
	Links []cnichain.Link
	// DefaultRoutes contains, by IP family (IPv4, IPv6), the sorted indexes of the links used by the preferred default
	// route in the main table. Families without a default route are omitted.
	DefaultRoutes map[string][]int
}

// Links operates on the links in a pod's network namespace, which is identified by a path.
type Links interface {
	// Links returns the links in the namespace.
	Links(netns string) ([]cnichain.Link, error)
	// Contents returns the links and the default routes in the namespace.
	Contents(netns string) (Contents, error)
	// Rename renames a link.
	Rename(netns string, index int, name string) error
	// Remove deletes a virtual link. It is not an error if the link does not exist.
	Remove(netns string, index int) error
	// ResetInPod resets a device to its state after ADD: no master, the alias from that time, only the alternative
	// names in its baseline, and, for a virtual link, its original MAC address. Changes made by an application must not
	// prevent a device from being returned to the host.
	ResetInPod(netns string, seen cnichain.Link, device cnichain.Device) error
	// Isolate moves a pod's link into the network namespace at target, creating the namespace if necessary, so that
	// processes in the pod can no longer change the link. The link keeps its index and is renamed to name; its
	// alternative names are removed. Isolate returns the link as seen in target. A link that is already in target is
	// only renamed.
	Isolate(netns string, index int, target, name string) (cnichain.Link, error)
	// RemoveStacked deletes the links in the namespace at netns that are stacked on a link in the namespace at lower,
	// such as VLANs and macvlans created by an application.
	RemoveStacked(netns, lower string, index int) error
	// MoveToHost moves the device's link to the host's namespace, under any name; Restore does the rest.
	MoveToHost(netns string, index int, device cnichain.Device) error
}

// Devices records the state of devices and restores that state when the devices return to the host.
type Devices interface {
	// Boot returns the ID of the current boot.
	Boot() (string, error)
	// Snapshot returns the device with its current baseline: names, index, MAC, MTU, state, driver, and the settings
	// that the physical function stores for a virtual function. It returns os.ErrNotExist if the device is not on the
	// host.
	Snapshot(cnichain.Device) (cnichain.Device, error)
	// Destroyed reports whether a virtual device no longer exists in any namespace. known is false for link kinds for
	// which this cannot be determined.
	Destroyed(cnichain.Device) (destroyed, known bool, err error)
	// OnHost reports whether a device is in the host's namespace. It does not change anything. A virtual device whose
	// baseline is from another boot has not been moved during this boot, so if it exists at all, it is on the host.
	OnHost(cnichain.Device) (bool, error)
	// Restore verifies that a device is in the host's namespace and matches its baseline, and corrects any differences.
	// It returns os.ErrNotExist if the device is not in the host's namespace. If the baseline is from another boot,
	// Restore changes no link; it only rebinds a PCI function to its original driver.
	Restore(cnichain.Device) error
}

// RDMA reads the state of RDMA devices.
type RDMA interface {
	// RDMAMode returns cnichain.RDMAShared or RDMAExclusive, or "" if the kernel does not support RDMA.
	RDMAMode() (string, error)
	// RDMADevices lists the RDMA devices in a network namespace, with their names but without their links. An empty
	// path refers to the host's namespace, the only one in which PCI addresses are reported. The list is empty if the
	// kernel does not support RDMA. RDMADevices does not query the hardware.
	RDMADevices(netns string) ([]cnichain.RDMADevice, error)
	// RDMAPorts lists the host's RDMA devices and the network interface behind each port. Some drivers query the
	// hardware for this.
	RDMAPorts() ([]cnichain.RDMADevice, error)
	// RDMANodes returns the sorted device nodes that applications use to access the given RDMA devices in a network
	// namespace (an empty path refers to the host's). If management is true, the nodes for management datagrams are
	// included. The numbers in the node names change with every move.
	RDMANodes(netns string, devices []cnichain.RDMADevice, management bool) ([]string, error)
	// RDMANames returns one name for each RDMA device on the node, regardless of its namespace. In exclusive mode,
	// where each RDMA device belongs to a single namespace, several devices may share a name.
	RDMANames() ([]string, error)
}

// RDMAMoves moves RDMA devices between network namespaces.
type RDMAMoves interface {
	// MoveRDMA moves an RDMA device from the host into a network namespace. It is not an error if the device is already
	// in that namespace.
	MoveRDMA(netns string, device cnichain.RDMADevice) error
	// ReturnRDMA moves an RDMA device from a network namespace to the host, under any name; Restore does the rest. It
	// is not an error if the device is missing from the namespace.
	ReturnRDMA(netns string, device cnichain.RDMADevice) error
}

// Verbs reads the identifiers that applications use to address RDMA devices.
type Verbs interface {
	// VerbsDevice returns the character device, such as uverbs0, of an RDMA device in a network namespace (an empty
	// path refers to the host's), and the nonempty entries in the RDMA device's GID tables. The kernel adds a GID some
	// time after the corresponding IP address. VerbsDevice does not query the hardware.
	VerbsDevice(netns string, device cnichain.RDMADevice) (verbs string, table []cnichain.GIDEntry, err error)
	// Addresses returns the links in a pod's network namespace and their addresses.
	Addresses(netns string) ([]cnichain.LinkAddresses, error)
}

// Functions operates on PCI functions.
type Functions interface {
	// BindDriver binds a device to the driver BindTo, unless it is already bound to that driver, and returns the device
	// nodes that an application needs to use the device. Restore undoes the binding.
	BindDriver(cnichain.Device) (nodes []string, err error)
	// CheckDeviceNode returns an error if the kernel does not have the device behind a file such as /dev/net/tun.
	CheckDeviceNode(file string) error
	// FreeAddress makes a virtual function on the host accept MAC addresses other than its own again, in case its
	// driver rejects them because of a previous owner. Restore also does this.
	FreeAddress(cnichain.Device) error
	// Gone reports whether the hardware no longer exists, because it was removed from the machine or because the
	// virtual functions of its physical function were recreated. It returns false for virtual links.
	Gone(cnichain.Device) bool
}
