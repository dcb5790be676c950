package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery/rdmalink"
)

// sysRDMA lists the RDMA devices in the reader's network namespace. sysVerbs lists the character devices in all
// namespaces, each with the name of its RDMA device (uverbs_main.c does not separate this class by namespace).
const (
	sysRDMA  = "/sys/class/infiniband"
	sysVerbs = "/sys/class/infiniband_verbs"
)

// hasRDMA reports whether the kernel supports RDMA. Querying a kernel without RDMA would load modules.
func hasRDMA() bool {
	_, err := os.Stat(sysRDMA)
	return err == nil
}

// withRDMA opens a handle for the RDMA devices in a network namespace. It does nothing if the kernel does not support
// RDMA.
func withRDMA(path string, do func(*rdmalink.Handle) error) error {
	if !hasRDMA() {
		return nil
	}
	handle, err := rdmalink.Open(path)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer handle.Close()
	return do(handle)
}

// RDMAMode reads the mode from the kernel.
func (Linux) RDMAMode() (mode string, err error) {
	err = withRDMA("", func(handle *rdmalink.Handle) (err error) {
		mode, err = handle.Mode()
		return err
	})
	return mode, err
}

// RDMADevices reads the list from the kernel, and starts over if a concurrent change interrupts the dump.
func (Linux) RDMADevices(path string) (devices []cnichain.RDMADevice, err error) {
	err = withRDMA(path, func(handle *rdmalink.Handle) error {
		found, err := handle.List()
		for attempt := 1; attempt < 10 && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
			found, err = handle.List()
		}
		devices = rdmaDevices(found, path == "")
		return err
	})
	return devices, err
}

// RDMAPorts reads the list from the kernel.
func (Linux) RDMAPorts() (devices []cnichain.RDMADevice, err error) {
	err = withRDMA("", func(handle *rdmalink.Handle) error {
		found, err := handle.Devices()
		devices = rdmaDevices(found, true)
		return err
	})
	if err == nil && len(devices) > 0 {
		err = addMasters(devices)
	}
	return devices, err
}

// rdmaDevices converts the devices reported by netlink. PCI addresses come from sysfs, which shows only devices in the
// host's namespace, so the address of a device in a pod is left empty.
func rdmaDevices(found []rdmalink.Device, onHost bool) []cnichain.RDMADevice {
	devices := make([]cnichain.RDMADevice, 0, len(found))
	for _, device := range found {
		rdma := cnichain.RDMADevice{Index: device.Index, Name: device.Name, Ports: device.Ports, Links: device.Links,
			LinksUnknown: device.LinksUnknown, Protocol: device.Protocol}
		if onHost {
			rdma.PCIAddress = functionOfRDMA(device.Name)
		}
		devices = append(devices, rdma)
	}
	return devices
}

// RDMANames reads sysfs, since netlink reports only the devices in its socket's namespace. It omits devices that have
// no character device, because pods cannot use them.
func (Linux) RDMANames() (names []string, err error) {
	paths, err := filepath.Glob(filepath.Join(sysVerbs, "uverbs*", "ibdev"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // it has been removed in the meantime
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list the names of RDMA devices: %w", err)
		}
		names = append(names, strings.TrimSuffix(string(name), "\n"))
	}
	return names, nil
}

// addMasters adds bonds and teams to the links of their members' RDMA devices, because an application that uses a bond
// uses the RDMA devices of its members, and the RDMA device of a hardware bond reports one member as its port's link.
func addMasters(devices []cnichain.RDMADevice) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot list the links of RDMA devices: %w", err)
	}
	defer handle.Close()
	links, err := listLinks(handle)
	if err != nil {
		return fmt.Errorf("cannot list the links of RDMA devices: %w", err)
	}
	kinds, masters := map[int]string{}, map[int]int{}
	for _, link := range links {
		kinds[link.Attrs().Index], masters[link.Attrs().Index] = link.Type(), link.Attrs().MasterIndex
	}
	for i := range devices {
		for _, member := range slices.Clone(devices[i].Links) {
			if master := masters[member]; kinds[master] == "bond" || kinds[master] == "team" {
				devices[i].Links = append(devices[i].Links, master)
			}
		}
	}
	return nil
}

// functionOfRDMA returns the PCI address of the hardware behind an RDMA device on the host, or "" if there is none.
func functionOfRDMA(name string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(sysRDMA, name, "device"))
	if err != nil {
		return ""
	}
	address := filepath.Base(target)
	if _, err := os.Stat(filepath.Join(sysPCI, address)); err != nil {
		return "" // its parent is not a PCI function but, for example, a link
	}
	return address
}

// MoveRDMA moves the device and verifies that it is in the namespace.
//
// The index identifies the device in every namespace for its entire lifetime, whereas names may be reused.
func (h Linux) MoveRDMA(path string, device cnichain.RDMADevice) error {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("cannot move RDMA device %s into %s: %w", device.Name, path, err)
	}
	defer func() { _ = namespace.Close() }()
	found, err := h.findRDMA(path, device.Index)
	if err != nil || found != nil {
		return err
	}
	err = withRDMA("", func(handle *rdmalink.Handle) error { return handle.Move(device.Index, namespace) })
	if err != nil {
		return fmt.Errorf("cannot move RDMA device %s into %s: %w", device.Name, path, err)
	}
	if found, err = h.findRDMA(path, device.Index); err == nil && found == nil {
		err = fmt.Errorf("cannot move RDMA device %s into %s: the kernel reported success, but it is missing there; "+
			"its kernel driver may have removed it", device.Name, path)
	}
	return err
}

// findRDMA finds an RDMA device by its index. It returns nil if the device is not in the namespace.
func (h Linux) findRDMA(path string, index uint32) (*cnichain.RDMADevice, error) {
	devices, err := h.RDMADevices(path)
	if err != nil {
		return nil, err
	}
	for i := range devices {
		if devices[i].Index == index {
			return &devices[i], nil
		}
	}
	return nil, nil
}

// ReturnRDMA first renames the device if another device on the host now has its name; otherwise, the kernel would
// refuse to move it.
func (h Linux) ReturnRDMA(path string, device cnichain.RDMADevice) error {
	inPod, err := h.findRDMA(path, device.Index)
	if err != nil || inPod == nil {
		return err
	}
	onHost, err := h.RDMADevices("")
	if err != nil {
		return err
	}
	// The kernel moves a device out of the calling thread's namespace, regardless of the namespace of the socket
	// (drivers/infiniband/core/device.c, ib_device_set_netns_put).
	err = ns.WithNetNSPath(path, func(hostNetns ns.NetNS) error {
		return withRDMA("", func(handle *rdmalink.Handle) error {
			if slices.ContainsFunc(onHost, func(other cnichain.RDMADevice) bool { return other.Name == inPod.Name }) {
				if err := handle.Rename(device.Index, rdmaTransitName(device)); err != nil {
					return err
				}
			}
			return handle.Move(device.Index, netns.NsHandle(hostNetns.Fd()))
		})
	})
	if err != nil {
		return fmt.Errorf("cannot return RDMA device %s to the host from %s: %w", device.Name, path, err)
	}
	return nil
}

// rdmaTransitName returns a temporary name for an RDMA device on its way to the host, in case its own name is already
// in use there.
func rdmaTransitName(device cnichain.RDMADevice) string {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, device.Name, device.Index)
	return fmt.Sprintf("dra-%08x", hash.Sum32())
}

// RDMANodes queries netlink, because in sysfs, two devices from different namespaces may have the same name.
func (Linux) RDMANodes(path string, devices []cnichain.RDMADevice, management bool) (nodes []string, err error) {
	err = withRDMA(path, func(handle *rdmalink.Handle) error {
		for _, device := range devices {
			names, err := characterDevices(handle, device, management)
			if err != nil {
				return fmt.Errorf("cannot find the character devices of RDMA device %s: %w", device.Name, err)
			}
			nodes = append(nodes, names...)
		}
		if name, err := handle.CharacterDevice(rdmalink.ConnectionManager, nil, 0); err == nil {
			nodes = append(nodes, name)
		} else if !isNoCharacterDevice(err) {
			return err
		}
		return nil
	})
	if err == nil && len(nodes) == 0 && len(devices) > 0 { // withRDMA did nothing
		err = fmt.Errorf("cannot find the character devices of RDMA device %s: the kernel no longer has RDMA "+
			"devices; load their modules", devices[0].Name)
	}
	for i := range nodes {
		nodes[i] = "/dev/infiniband/" + nodes[i]
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), err
}

// characterDevices returns the names below /dev/infiniband that a container needs for a device: the verbs node and, if
// requested, each port's nodes for management datagrams. It always reads the names from the kernel, since moving a
// device changes the numbers in them.
func characterDevices(handle *rdmalink.Handle, device cnichain.RDMADevice, management bool) ([]string, error) {
	asked := &rdmalink.Device{Index: device.Index}
	verbs, err := handle.CharacterDevice(rdmalink.Verbs, asked, 0)
	if isNoCharacterDevice(err) {
		err = fmt.Errorf("%w; load the kernel module ib_uverbs (Linux 5.3 or later)", err)
	}
	if err != nil {
		return nil, err
	}
	names := []string{verbs}
	for port := uint32(1); management && port <= device.Ports; port++ {
		for _, kind := range []string{rdmalink.Management, rdmalink.SubnetManagement} {
			name, err := handle.CharacterDevice(kind, asked, port)
			if isNoCharacterDevice(err) {
				continue // RoCE has no subnet manager, and modules may not be loaded
			}
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

func isNoCharacterDevice(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV)
}

// restoreRDMA verifies that every RDMA device that moved along with a device is on the host under its original name.
// Some time after a namespace is destroyed, the kernel returns its RDMA devices to the host, and renames any whose name
// is in use to ibdevN (drivers/infiniband/core/device.c, rdma_dev_exit_net).
func (h Linux) restoreRDMA(device *cnichain.Device) error {
	if len(device.Moved) == 0 {
		return nil
	}
	onHost, err := h.RDMADevices("")
	if err == nil && slices.ContainsFunc(device.Moved, func(moved cnichain.RDMADevice) bool {
		return findReturned(device, moved, onHost) == nil
	}) {
		onHost, err = h.RDMAPorts()
	}
	if err != nil {
		return fmt.Errorf("cannot check device %s: %w", device.Name, err)
	}
	for _, moved := range device.Moved {
		found := findReturned(device, moved, onHost)
		if found == nil {
			return fmt.Errorf("cannot restore device %s: its RDMA device %s is not on the host; it is still in a "+
				"pod, or its kernel module was unloaded; load it again, and then run \"netdra release --all\"",
				device.Name, moved.Name)
		}
		if found.Name == moved.Name {
			continue
		}
		err := withRDMA("", func(handle *rdmalink.Handle) error { return handle.Rename(found.Index, moved.Name) })
		if err != nil {
			return fmt.Errorf("cannot restore device %s: its RDMA device has the name %s, and %s cannot be set: %w; "+
				"rename the RDMA device that has it", device.Name, found.Name, moved.Name, err)
		}
	}
	return nil
}

// findReturned finds an RDMA device that was moved, or returns nil. It first compares indexes, but an index does not
// survive a rebind of the kernel driver, and may belong to another NIC after all RDMA modules have been reloaded. If no
// index matches, the candidates are the device's RDMA devices, minus any that match another moved RDMA device.
// findReturned then picks the candidate with the same name or, if only one RDMA device was moved, the sole candidate.
func findReturned(
	device *cnichain.Device, moved cnichain.RDMADevice, onHost []cnichain.RDMADevice,
) *cnichain.RDMADevice {
	for i := range onHost {
		if isReturned(&moved, &onHost[i]) {
			return &onHost[i]
		}
	}
	candidates := slices.DeleteFunc(cnichain.RDMADevicesOf(device, onHost), func(rdma cnichain.RDMADevice) bool {
		return slices.ContainsFunc(device.Moved,
			func(other cnichain.RDMADevice) bool { return isReturned(&other, &rdma) })
	})
	named := slices.IndexFunc(candidates, func(rdma cnichain.RDMADevice) bool { return rdma.Name == moved.Name })
	switch {
	case named >= 0:
		return &candidates[named]
	case len(candidates) == 1 && len(device.Moved) == 1:
		return &candidates[0]
	}
	return nil
}

// isReturned reports whether an RDMA device on the host is the one that was moved. It does not compare names, since the
// kernel may have changed the name.
func isReturned(moved, seen *cnichain.RDMADevice) bool {
	return moved.Index == seen.Index && (moved.PCIAddress == "" || moved.PCIAddress == seen.PCIAddress)
}
