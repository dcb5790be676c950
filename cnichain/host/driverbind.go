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

// Devices that an application drives itself: they are bound to a driver such as vfio-pci, and pods get device nodes.

// busPCI is where the kernel is told about drivers of PCI functions.
const busPCI = "/sys/bus/pci"

// driverBinding is a PCI function's kernel driver, "" for none, and the only one that may take it, "" for whichever
// fits.
type driverBinding struct{ driver, override string }

// busWrite is a file below busPCI and the value to write.
type busWrite struct{ file, value string }

// rebind lists what to write so that a function goes from one binding to another. No other driver can take it in
// between: the override comes first. A crash may leave any part of it done; what that leads to is a binding, from which
// rebind leads on.
//
// An example, from mlx5_core to vfio-pci: driver_override gets "vfio-pci", the function is unbound, and drivers_probe
// has the kernel look for a driver, of which only vfio-pci may take it. On the way back the override is mlx5_core for
// the probe, and is cleared afterwards if there was none before. A newline clears it
// (Documentation/ABI/testing/sysfs-bus-pci).
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

// readBinding reads how a function is bound.
func readBinding(address string) driverBinding {
	return driverBinding{driver: driverOf(&cnichain.Device{PCIAddress: address}), override: overrideOf(address)}
}

// overrideOf is "" if there is none, which the kernel shows as "(null)".
func overrideOf(address string) string {
	text := strings.TrimSpace(readFunction(address, "driver_override"))
	if text == "(null)" {
		return ""
	}
	return text
}

// changeBinding changes how a function is bound and looks again.
//
// The kernel reports success of a probe also when no driver took the function. So the binding is read again.
func changeBinding(device *cnichain.Device, want driverBinding) error {
	for _, write := range rebind(device.PCIAddress, readBinding(device.PCIAddress), want) {
		if err := writeBus(write); err != nil {
			return fmt.Errorf("cannot bind device %s (PCI %s) to the driver %q: %w", device.Name, device.PCIAddress,
				want.driver, err)
		}
	}
	if bound := readBinding(device.PCIAddress); bound != want {
		return fmt.Errorf("device %s (PCI %s) has the driver %q and not %q, although that was asked to take it: see "+
			"the kernel's log (dmesg) for the reason", device.Name, device.PCIAddress, bound.driver, want.driver)
	}
	return nil
}

// writeBus writes in one call, as the kernel wants it.
func writeBus(write busWrite) error {
	file, err := os.OpenFile(filepath.Join(busPCI, write.file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(write.value)
	return errors.Join(err, file.Close())
}

// BindDriver gives a device to the driver that its step wants.
//
// All that can be refused is refused before anything changes: a function that has lost its driver and gets no other is
// worth nothing to anybody.
func (Linux) BindDriver(device cnichain.Device) ([]string, error) {
	if _, err := os.Stat(filepath.Join(busPCI, "drivers", device.BindTo)); err != nil {
		return nil, fmt.Errorf("the kernel has no driver %s for device %s: load its module on the node (modprobe %s)",
			device.BindTo, device.Name, device.BindTo)
	}
	if vfs := strings.TrimSpace(readFunction(device.PCIAddress, "sriov_numvfs")); vfs != "" && vfs != "0" {
		return nil, fmt.Errorf("device %s (PCI %s) has %s virtual functions, which would go with its driver: set "+
			"sriov_numvfs to 0, or take a virtual function", device.Name, device.PCIAddress, vfs)
	}
	group, err := readGroup(device.PCIAddress)
	if err == nil {
		err = group.viable(device.PCIAddress)
	} else if noIOMMUAllowed() {
		err = nil // it gets a group of its own when it is bound
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device.Name, err)
	}
	if driver := driverOf(&device); driver != device.BindTo { // keep a driver that an administrator has bound
		if err := changeBinding(&device, driverBinding{driver: device.BindTo, override: device.BindTo}); err != nil {
			return nil, err
		}
	}
	if group, err = readGroup(device.PCIAddress); err == nil {
		err = group.viable(device.PCIAddress) // another step may have bound another of its functions meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device.Name, err)
	}
	return group.nodes(), nil
}

// noIOMMUAllowed says whether an administrator has allowed applications to drive devices without an IOMMU.
func noIOMMUAllowed() bool {
	data, err := os.ReadFile("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	return err == nil && strings.TrimSpace(string(data)) == "Y"
}

// restoreBinding takes the device back from the driver that its step wanted, unless an application still has it open:
// the kernel would wait until it is closed, and nothing could end the one who asks meanwhile, who keeps the journal
// (vfio_unregister_group_dev).
func restoreBinding(device *cnichain.Device) error {
	if driver := driverOf(device); driver == device.BindTo && driver != device.Driver &&
		isOpen(readFunction(device.PCIAddress, "enable")) {
		return fmt.Errorf("device %s (PCI %s) is still open in an application: it can be taken back when that has "+
			"ended", device.Name, device.PCIAddress)
	}
	return changeBinding(device, driverBinding{driver: device.Driver, override: device.DriverOverride})
}

// isOpen says whether anybody uses a function that is bound to a driver for applications: those enable it when it is
// opened, and disable it when it is closed. The file counts who has enabled it.
func isOpen(enable string) bool {
	enable = strings.TrimSpace(enable)
	return enable != "" && enable != "0"
}

func readFunction(address, file string) string {
	data, err := os.ReadFile(filepath.Join(sysPCI, address, file))
	if err != nil {
		return ""
	}
	return string(data)
}

// iommuGroup is a group of devices that the IOMMU cannot separate. Applications get all of it or nothing.
type iommuGroup struct {
	number string
	// unprotected: the machine has no IOMMU, and an administrator has allowed this.
	unprotected bool
	members     []groupMember
}

type groupMember struct {
	address, driver string
	// bridge: it is part of the way to the others.
	bridge bool
}

// readGroup reads the IOMMU group of a function: what vfio gives to an application is a group, so all its members must
// be the pod's, but for bridges, whose kernel driver may stay (driver_managed_dma in struct device_driver).
func readGroup(address string) (iommuGroup, error) {
	path := filepath.Join(sysPCI, address, "iommu_group")
	target, err := os.Readlink(path)
	if err != nil {
		return iommuGroup{}, fmt.Errorf("PCI %s has no IOMMU group: switch the IOMMU on in the firmware and in the "+
			"kernel's command line (intel_iommu=on)", address)
	}
	group := iommuGroup{number: filepath.Base(target)}
	name, err := os.ReadFile(filepath.Join(path, "name"))
	group.unprotected = err == nil && strings.TrimSpace(string(name)) == "vfio-noiommu"
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

// viable refuses groups with another device that has a driver. The host works with it, or it is another application's,
// and whoever has the group's device node has all of it.
func (g iommuGroup) viable(address string) error {
	index := slices.IndexFunc(g.members, func(m groupMember) bool {
		return m.address != address && !m.bridge && m.driver != ""
	})
	if index < 0 {
		return nil
	}
	return fmt.Errorf("PCI %s is in IOMMU group %s with %s, which has the driver %s: an application can't have the "+
		"one without the other", address, g.number, g.members[index].address, g.members[index].driver)
}

// nodes returns the device nodes of the group, and the node that groups are added to.
func (g iommuGroup) nodes() []string {
	name := g.number
	if g.unprotected {
		name = "noiommu-" + g.number
	}
	return []string{"/dev/vfio/" + name, "/dev/vfio/vfio"}
}
