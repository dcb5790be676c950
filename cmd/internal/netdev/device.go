package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
)

// sysfs is the directory where the kernel lists devices, grouped by bus.
const sysfs = "/sys/bus"

// userspaceDrivers returns the drivers that make a PCI function accessible to an application. A function that is bound
// to one of these drivers has no link until it is bound to a kernel driver again, so there is nothing for ADD to move.
// ADD still calls the IPAM plugin, because the application may need an address.
func userspaceDrivers() []string { return []string{"vfio-pci", "uio_pci_generic", "igb_uio"} }

// findDevice returns the configured device's link, or nil if the device is a PCI function with a userspace driver. If
// the device is configured by bus address, its link is looked up by index, because another process may rename the link
// after sysfs is read and before netlink is queried.
func findDevice(conf *config, host *namespace) (netlink.Link, error) {
	dir, err := conf.folder()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		link, err := host.links.LinkByName(conf.Device)
		if err != nil {
			return nil, fmt.Errorf("cannot find link %q on the host: %w", conf.Device, err)
		}
		return link, nil
	}
	driver, err := os.Readlink(filepath.Join(dir, "driver"))
	if err == nil && slices.Contains(userspaceDrivers(), filepath.Base(driver)) {
		return nil, nil
	}
	index, err := linkIndexBelow(dir, conf.linkName())
	if err != nil {
		return nil, err
	}
	link, err := host.links.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("cannot find the link of device %s on the host: %w", filepath.Base(dir), err)
	}
	return link, nil
}

// linkName returns the name that the link must have, or "" if any name is accepted.
func (c *config) linkName() string {
	if c.RuntimeConfig.DeviceID != "" {
		return ""
	}
	return c.Device
}

// folder returns the device's directory in sysfs, or "" if the device is looked up by link name. runtimeConfig.deviceID
// takes precedence: it identifies the device that a device plugin has allocated, whereas the rest of the configuration
// is the same for all pods on the network.
func (c *config) folder() (string, error) {
	if id := c.RuntimeConfig.DeviceID; id != "" {
		for _, bus := range []string{"pci", "auxiliary"} {
			dir, err := deviceFolder(bus, id)
			if !errors.Is(err, fs.ErrNotExist) {
				return dir, err
			}
		}
		const problem = "cannot find device %q of runtimeConfig.deviceID: it is neither a PCI function nor an " +
			"auxiliary device"
		return "", fmt.Errorf(problem, id)
	}
	if c.PCIAddress != "" {
		dir, err := deviceFolder("pci", c.PCIAddress)
		if err != nil {
			err = fmt.Errorf("cannot find PCI function %q: %w", c.PCIAddress, err)
		}
		return dir, err
	}
	if c.Device == "" {
		return "", types.NewError(types.ErrInvalidNetworkConfig, "the configuration names no device",
			"set device or pciBusID")
	}
	return "", nil
}

// deviceFolder returns a device's directory in sysfs. Its error matches [fs.ErrNotExist] if the device does not exist.
// Names with a slash or a leading dot are rejected before they are used as paths, because the configuration may come
// from a pod annotation.
func deviceFolder(bus, name string) (string, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%q is not the name of a device", name),
			"")
	}
	dir := filepath.Join(sysfs, bus, "devices", name)
	_, err := os.Stat(dir)
	return dir, err
}

// linkIndexBelow returns the index of a device's link. If the device has several links, as with a NIC that has
// representors, the name is required.
//
// sysfs shows the links in the network namespace that it was mounted in. It does not list a link that was moved to a
// pod; this is how linkIndexBelow detects that a device is already in use.
func linkIndexBelow(dir, name string) (int, error) {
	var links []string
	// A virtio NIC's link is below the device on the virtio bus, which is a child of the PCI function.
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return 0, err
		}
		links = append(links, found...)
	}
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = filepath.Base(link)
	}
	i := slices.Index(names, name)
	switch device := filepath.Base(dir); {
	case len(links) == 0:
		const problem = "device %s has no link on the host; bind it to a network driver, or stop the process or pod " +
			"that uses the link"
		return 0, fmt.Errorf(problem, device)
	case name != "" && i < 0:
		return 0, fmt.Errorf("device %s has no link %q on the host, only %s", device, name, strings.Join(names, ", "))
	case name == "" && len(links) > 1:
		return 0, fmt.Errorf("device %s has several links: %s; select one with device", device,
			strings.Join(names, ", "))
	}
	data, err := os.ReadFile(filepath.Join(links[max(i, 0)], "ifindex"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
