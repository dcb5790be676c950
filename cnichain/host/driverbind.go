package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// This file handles devices that an application drives directly: they are bound to a driver such as vfio-pci, and their
// device nodes are exposed to pods.

// busPCI is the sysfs directory of the PCI bus, which also contains the PCI drivers.
const busPCI = "/sys/bus/pci"

// driverBinding is the current kernel driver of a PCI function ("" for none), and the only driver allowed to bind to it
// ("" if any matching driver is allowed).
type driverBinding struct{ driver, override string }

// busWrite is a value to write to a file below busPCI.
type busWrite struct{ file, value string }

// rebind lists the writes that change a function's binding. No other driver can bind to the function in between, since
// the override is set first. A crash after any of these writes leaves a valid binding, from which rebind can continue.
//
// For example, from mlx5_core to vfio-pci: driver_override is set to "vfio-pci", the function is unbound, and a write
// to drivers_probe makes the kernel search for a driver; only vfio-pci is allowed. On the way back, the override is
// mlx5_core during the probe, and is cleared afterwards if there was no override originally. Writing a newline clears
// the override (Documentation/ABI/testing/sysfs-bus-pci).
func rebind(address string, current, want driverBinding) []busWrite {
	function := filepath.Join("devices", address)
	override := func(driver string) busWrite {
		return busWrite{filepath.Join(function, "driver_override"), driver + "\n"}
	}
	var writes []busWrite
	if current.driver != want.driver {
		if want.driver != "" && current.override != want.driver {
			writes = append(writes, override(want.driver))
			current.override = want.driver
		}
		if current.driver != "" {
			writes = append(writes, busWrite{filepath.Join(function, "driver", "unbind"), address})
		}
		if want.driver != "" {
			writes = append(writes, busWrite{"drivers_probe", address})
		}
	}
	if current.override != want.override {
		writes = append(writes, override(want.override))
	}
	return writes
}

func readBinding(address string) driverBinding {
	return driverBinding{driver: driverOf(&cnichain.Device{PCIAddress: address}), override: overrideOf(address)}
}

// overrideOf returns a function's driver override, or "" if there is none; in that case, sysfs shows "(null)".
func overrideOf(address string) string {
	return strings.TrimPrefix(readFunction(address, "driver_override"), "(null)")
}

// changeBinding changes a function's binding and verifies the new binding.
//
// The kernel reports a probe as successful even if no driver was bound, so changeBinding reads the binding back.
func changeBinding(device *cnichain.Device, want driverBinding) error {
	for _, write := range rebind(device.PCIAddress, readBinding(device.PCIAddress), want) {
		if err := writeBus(write); err != nil {
			return fmt.Errorf("cannot bind device %s (PCI %s) to the driver %q: %w", device.Name, device.PCIAddress,
				want.driver, err)
		}
	}
	if bound := readBinding(device.PCIAddress); bound != want {
		return fmt.Errorf("device %s (PCI %s) has the driver %q, although binding to %q was requested: see the "+
			"kernel's log (dmesg) for the reason", device.Name, device.PCIAddress, bound.driver, want.driver)
	}
	return nil
}

// writeBus writes the value in a single call, as the kernel requires.
func writeBus(write busWrite) error {
	file, err := os.OpenFile(filepath.Join(busPCI, write.file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(write.value)
	return errors.Join(err, file.Close())
}

// BindDriver binds a device to the driver requested by its step.
//
// It checks for every reason to reject the device before changing anything: a function that is unbound from its driver
// and not bound to another is unusable.
func (Linux) BindDriver(device cnichain.Device) ([]string, error) {
	if _, err := os.Stat(filepath.Join(busPCI, "drivers", device.BindTo)); err != nil {
		return nil, fmt.Errorf("the kernel has no driver %s for device %s: load its module on the node (modprobe %s)",
			device.BindTo, device.Name, device.BindTo)
	}
	if vfs := readFunction(device.PCIAddress, "sriov_numvfs"); vfs != "" && vfs != "0" {
		return nil, fmt.Errorf("device %s (PCI %s) has %s virtual functions, which would be lost without its "+
			"driver: set sriov_numvfs to 0, or use a virtual function", device.Name, device.PCIAddress, vfs)
	}
	scalable, err := filepath.Glob(filepath.Join(sysPCI, device.PCIAddress, "*.sf.*"))
	if err != nil || len(scalable) > 0 {
		return nil, fmt.Errorf("device %s (PCI %s) has %d scalable functions, which would be lost without its driver: "+
			"delete them (devlink port del), or use a scalable function", device.Name, device.PCIAddress, len(scalable))
	}
	group, err := readGroup(device.PCIAddress)
	if err == nil {
		err = group.viable(device.PCIAddress)
	} else if noIOMMUAllowed() {
		err = nil // binding the function creates its group
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device.Name, err)
	}
	if driver := driverOf(&device); driver != device.BindTo { // keep a driver bound by an administrator
		if err := changeBinding(&device, driverBinding{driver: device.BindTo, override: device.BindTo}); err != nil {
			return nil, err
		}
	}
	if group, err = readGroup(device.PCIAddress); err == nil {
		err = group.viable(device.PCIAddress) // another step may have bound a different function in the group
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device.Name, err)
	}
	return group.nodes(), nil
}

// noIOMMUAllowed reports whether an administrator allows applications to drive devices without an IOMMU.
func noIOMMUAllowed() bool {
	return readFile("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
}

// restoreBinding unbinds the device from its step's driver and restores the original binding, unless an application
// still has the device open. In that case, unbinding would block in the kernel until the device is closed
// (vfio_unregister_group_dev), and the caller, which holds the journal's lock, could not be interrupted.
func restoreBinding(device *cnichain.Device) error {
	if driver := driverOf(device); driver == device.BindTo && driver != device.Driver &&
		isOpen(readFunction(device.PCIAddress, "enable")) {
		return fmt.Errorf("device %s (PCI %s) is still open in an application: it can be restored when the "+
			"application has ended", device.Name, device.PCIAddress)
	}
	return changeBinding(device, driverBinding{driver: device.Driver, override: device.DriverOverride})
}

// isOpen reports whether an application has opened a function that is bound to a driver such as vfio-pci. These drivers
// enable the function when it is opened, and disable it when it is closed. The sysfs file "enable" contains the
// function's enable count.
func isOpen(enable string) bool {
	enable = strings.TrimSpace(enable)
	return enable != "" && enable != "0"
}

// iommuGroup is a group of devices that the IOMMU cannot isolate from one another. An application is given either the
// whole group or nothing.
type iommuGroup struct {
	number string
	// unprotected is set if the machine has no IOMMU and an administrator allows applications to drive devices without
	// an IOMMU.
	unprotected bool
	members     []groupMember
}

type groupMember struct {
	address, driver string
	// bridge is set if the member is a PCI bridge.
	bridge bool
}

// readGroup reads the IOMMU group of a function. vfio assigns whole groups to applications, so all members must be
// assigned to the pod. Bridges are an exception: they may keep their kernel driver (driver_managed_dma in struct
// device_driver).
func readGroup(address string) (iommuGroup, error) {
	path := filepath.Join(sysPCI, address, "iommu_group")
	target, err := os.Readlink(path)
	if err != nil {
		return iommuGroup{}, fmt.Errorf("PCI %s has no IOMMU group: switch the IOMMU on in the firmware and in the "+
			"kernel's command line (intel_iommu=on)", address)
	}
	group := iommuGroup{number: filepath.Base(target), unprotected: readFile(path, "name") == "vfio-noiommu"}
	entries, err := os.ReadDir(filepath.Join(path, "devices"))
	if err != nil {
		return iommuGroup{}, err
	}
	for _, entry := range entries {
		group.members = append(group.members, groupMember{
			address: entry.Name(), driver: driverOf(&cnichain.Device{PCIAddress: entry.Name()}),
			bridge: strings.HasPrefix(readFunction(entry.Name(), "class"), "0x0604"),
		})
	}
	return group, nil
}

// viable rejects a group in which another device is bound to a driver. Such a device is in use by the host or by
// another application, but an application that opens the group's device node would control every device in the group.
func (g iommuGroup) viable(address string) error {
	index := slices.IndexFunc(g.members, func(m groupMember) bool {
		return m.address != address && !m.bridge && m.driver != ""
	})
	if index < 0 {
		return nil
	}
	return fmt.Errorf("PCI %s is in IOMMU group %s with %s, which has the driver %s: an application cannot use one "+
		"without the other", address, g.number, g.members[index].address, g.members[index].driver)
}

// nodes returns the group's device node and the container node, to which applications add groups.
func (g iommuGroup) nodes() []string {
	name := g.number
	if g.unprotected {
		name = "noiommu-" + g.number
	}
	return []string{"/dev/vfio/" + name, "/dev/vfio/vfio"}
}

// CheckDeviceNode implements Host. It looks for the device in sysfs, since udev creates files below /dev even if the
// corresponding kernel module is missing.
func (Linux) CheckDeviceNode(file string) error {
	name := filepath.Base(file)
	if _, err := os.Stat(filepath.Join("/sys/class/misc", name)); err != nil {
		return fmt.Errorf("cannot provide %s to the pod: the node's kernel does not have the device (%w); load its "+
			"module on the node (modprobe %s)", file, err, strings.ReplaceAll(name, "-", "_"))
	}
	return nil
}
