package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/linkstate"
	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sysPCI is the sysfs directory for PCI functions.
const sysPCI = "/sys/bus/pci/devices"

// Snapshot reads the baseline of a device that is on the host. It ignores a baseline recorded during an earlier boot,
// which says nothing about the current links, and looks up a virtual device by name instead.
func (h Linux) Snapshot(device cnichain.Device) (cnichain.Device, error) {
	boot, err := h.Boot()
	if err != nil {
		return device, err
	}
	if device.BootID != boot {
		// Keep the kind and the port: they identify one of a function's links, and do not change across reboots.
		device.Baseline = cnichain.Baseline{Kind: device.Kind, Port: device.Port}
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return device, fmt.Errorf("cannot inspect device %s: %w", device.Name, err)
	}
	defer handle.Close()
	if device.IfName != "" {
		link, err := findDevice(handle, &device)
		if err != nil {
			return device, err
		}
		readBaseline(&device, link)
		if device.StandsOn, err = lowerLink(handle, link); err != nil {
			return device, err
		}
		if device.Exclusive {
			if device.State, err = linkstate.Read(device.Index); err != nil {
				return device, err
			}
		}
		if device.AllowInUse && device.Exclusive {
			if device.Network, err = readNetwork(handle, link); err != nil {
				return device, err
			}
		}
	}
	// Set the boot ID after all other link properties. Otherwise, findDevice would compare links with a baseline that
	// has not been read yet.
	device.BootID = boot
	device.Driver = driverOf(&device)
	if device.PCIAddress != "" {
		device.DriverOverride = overrideOf(device.PCIAddress)
	}
	if device.PF != "" && device.PCIAddress != "" { // a physical function stores no settings for its scalable functions
		_, info, err := findVF(handle, &device)
		if err != nil {
			return device, err
		}
		device.VF = nil // the physical function stores no settings, for example with virtio
		if info != nil {
			device.VF = new(vfConfig(info))
		}
	}
	return device, nil
}

// readBaseline records the properties that Restore restores later. All other properties are inherited by the next
// owner.
func readBaseline(device *cnichain.Device, link netlink.Link) {
	attrs := link.Attrs()
	device.IfName = attrs.Name
	device.Baseline = cnichain.Baseline{
		Kind: link.Type(), Index: attrs.Index, Parent: attrs.ParentIndex, Port: portOf(attrs.Name),
		AltNames: slices.Sorted(slices.Values(attrs.AltNames)), Alias: attrs.Alias,
		MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0,
		PeerOnHost: linkkind.IsPair(link.Type()) && attrs.NetNsID < 0 && attrs.ParentIndex != 0,
		ParentDev:  attrs.ParentDev, PermMAC: attrs.PermHWAddr.String(),
	}
	if link.Type() == "bridge" && readSys(attrs.Name, "addr_assign_type") != addressSet {
		device.MAC = "" // the MAC is copied from a port, and changes when ports are added or removed
	}
	if vlan, ok := link.(*netlink.Vlan); ok {
		device.VLANID, device.VLANProtocol = vlan.VlanId, vlan.VlanProtocol.String()
	}
}

// lowerLink returns the lower device of a link if it is in the same namespace, or nil if there is none.
func lowerLink(handle *netlink.Handle, link netlink.Link) (*cnichain.LowerLink, error) {
	index := linkkind.Lower(link)
	if index == 0 {
		return nil, nil
	}
	lower, err := handle.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the lower link of %s: %w", link.Attrs().Name, err)
	}
	found := &cnichain.LowerLink{Index: index}
	device := filepath.Join("/sys/class/net", lower.Attrs().Name, "device")
	if target, err := os.Readlink(filepath.Join(device, "physfn")); err == nil {
		found.PF = filepath.Base(target)
	} else if target, err := filepath.EvalSymlinks(device); err == nil && strings.Contains(filepath.Base(target), ".sf.") {
		found.PF = filepath.Base(filepath.Dir(target)) // a scalable function is below its physical function
	}
	return found, nil
}

// addressSet is NET_ADDR_SET in net/core: the address was set explicitly.
const addressSet = "3"

// portOf returns the port properties that distinguish the links of the same PCI function.
func portOf(link string) string {
	return strings.TrimSpace(readSys(link, "dev_port") + " " + readSys(link, "phys_port_name"))
}

// readSys reads a link's sysfs file. It returns "" if the file is missing or the driver does not support it.
func readSys(link, file string) string { return readFile("/sys/class/net", link, file) }

// readFunction reads a PCI function's sysfs file, like readSys.
func readFunction(address, file string) string { return readFile(sysPCI, address, file) }

func readFile(path ...string) string {
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// driverOf returns the kernel driver of the device's hardware, or "" for virtual links.
func driverOf(device *cnichain.Device) string {
	path := filepath.Join(sysPCI, device.PCIAddress, "driver")
	if device.PCIAddress == "" {
		path = filepath.Join("/sys/class/net", device.IfName, "device", "driver")
	}
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
