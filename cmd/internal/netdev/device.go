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

// sysfs is where the devices of the buses are.
const sysfs = "/sys/bus"

// userspaceDrivers hand a function to an application, without a link. A function that is bound to one of them has no
// link until it is bound to a kernel driver again, so ADD has nothing to move. ADD still asks the IPAM plugin: the
// application may want an address.
func userspaceDrivers() []string { return []string{"vfio-pci", "uio_pci_generic", "igb_uio"} }

// findDevice looks up the link that is asked for. It is nil if the device is a function that a driver for applications
// has. A device that is named by its place on a bus is looked up by index: between sysfs and netlink another program
// may rename the link.
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

// linkName is the name that the link must have; "" if any will do.
func (c *config) linkName() string {
	if c.RuntimeConfig.DeviceID != "" {
		return ""
	}
	return c.Device
}

// folder is that of the device in sysfs; "" if it is looked up by its name. runtimeConfig.deviceID comes first: it is
// what a device plugin has allocated, while the rest of the configuration is the same for every pod of the network.
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

// deviceFolder is the directory of a device in sysfs. Its error matches [fs.ErrNotExist] for a device that is not
// there. Names with a slash, or that begin with a dot, are refused before they reach the file system: the configuration
// may come from the annotation of a pod.
func deviceFolder(bus, name string) (string, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%q is not the name of a device", name),
			"")
	}
	dir := filepath.Join(sysfs, bus, "devices", name)
	_, err := os.Stat(dir)
	return dir, err
}

// linkIndexBelow is the index of a device's link. A device with several, such as a card with representors, needs a
// name.
//
// sysfs shows links of the network namespace in which it was mounted, so a link that is in a pod is not listed: that is
// how a device that somebody else has already is noticed.
func linkIndexBelow(dir, name string) (int, error) {
	var links []string
	// The link of a virtio card is below the device on the virtio bus, which is a child of the PCI function.
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
		const problem = "device %s has no link on the host; give it a driver of network devices, or end what has " +
			"the link"
		return 0, fmt.Errorf(problem, device)
	case name != "" && i < 0:
		return 0, fmt.Errorf("device %s has no link %q on the host, only %s", device, name, strings.Join(names, ", "))
	case name == "" && len(links) > 1:
		return 0, fmt.Errorf("device %s has several links: %s; name one by device", device, strings.Join(names, ", "))
	}
	data, err := os.ReadFile(filepath.Join(links[max(i, 0)], "ifindex"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
