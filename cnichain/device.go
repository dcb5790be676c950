package cnichain

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// sysPCI is where the kernel shows PCI functions.
const sysPCI = "/sys/bus/pci/devices"

// Snapshot reads the baseline of a device that is on the host.
func (LinuxHost) Snapshot(device Device) (Device, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return device, fmt.Errorf("cannot look at device %s: %w", device.Name, err)
	}
	defer handle.Close()
	if device.IfName != "" {
		link, err := findDevice(handle, &device)
		if err != nil {
			return device, err
		}
		remember(&device, link)
	}
	device.Driver = driverOf(&device)
	if device.PF != "" {
		config, err := readVF(handle, &device)
		if err != nil {
			return device, err
		}
		device.VF = config
	}
	return device, nil
}

func remember(device *Device, link netlink.Link) {
	attrs := link.Attrs()
	device.Kind = link.Type()
	device.IfName, device.Index, device.MAC, device.MTU = attrs.Name, attrs.Index, attrs.HardwareAddr.String(), attrs.MTU
	device.Up = attrs.Flags&net.FlagUp != 0
	device.AltNames, device.Alias = slices.Sorted(slices.Values(attrs.AltNames)), attrs.Alias
}

// driverOf is the kernel driver of the hardware, "" for virtual links.
func driverOf(device *Device) string {
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

// Restore finds the device wherever it is called on the host, changes what is not as its baseline says, and looks again.
func (h LinuxHost) Restore(device Device) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot check device %s: %w", device.Name, err)
	}
	defer handle.Close()
	if driver := driverOf(&device); device.PCIAddress != "" && device.Driver != "" && driver != device.Driver {
		return fmt.Errorf("device %s (PCI %s) had the driver %q and has %q: bind it again", device.Name, device.PCIAddress, device.Driver, driver)
	}
	if device.IfName != "" {
		if _, err := findDevice(handle, &device); err != nil {
			return err
		}
	}
	if device.VF != nil { // first, since a function may not have an address that its PF does not allow
		if err := restoreVF(handle, &device); err != nil {
			return err
		}
	}
	if device.IfName != "" {
		return restoreLink(handle, &device)
	}
	return nil
}

func restoreLink(handle *netlink.Handle, device *Device) error {
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	if err := applyBaseline(handle, link, device); err != nil {
		return fmt.Errorf("cannot give device %s its settings back: %w", device.Name, err)
	}
	link, err = findDevice(handle, device)
	if err != nil {
		return err
	}
	if wrong := differences(link.Attrs(), device); len(wrong) > 0 {
		return fmt.Errorf("device %s is not as it was: %s", device.Name, strings.Join(wrong, ", "))
	}
	return nil
}

// findDevice finds hardware by its PCI address. Another link is the device if it has the name that devices have on their way
// home, or if two of name, index and address are its own: any one of them may have changed, or belong to another by now. A
// plugin may have given it another name at another index; then it is the only link of its kind with the address.
func findDevice(handle *netlink.Handle, device *Device) (netlink.Link, error) {
	links, err := listLinks(handle)
	if err != nil {
		return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	if device.PCIAddress != "" {
		return findByPCI(links, device)
	}
	for _, link := range links {
		if attrs := link.Attrs(); attrs.Name == transitName(device) || matches(attrs, device) >= 2 || device.Index == 0 && attrs.Name == device.IfName {
			return link, nil
		}
	}
	alike := slices.DeleteFunc(links, func(link netlink.Link) bool {
		return device.MAC == "" || link.Type() != device.Kind || link.Attrs().HardwareAddr.String() != device.MAC
	})
	if len(alike) == 1 {
		return alike[0], nil
	}
	return nil, fmt.Errorf("device %s: the host has no link %s (index %d, address %s): %w", device.Name, device.IfName, device.Index, device.MAC, os.ErrNotExist)
}

func matches(attrs *netlink.LinkAttrs, device *Device) int {
	same := 0
	for _, is := range []bool{attrs.Name == device.IfName, attrs.Index == device.Index, attrs.HardwareAddr.String() == device.MAC} {
		if is {
			same++
		}
	}
	return same
}

// findByPCI prefers the link of the known name or address: some functions have several ports.
func findByPCI(links []netlink.Link, device *Device) (netlink.Link, error) {
	entries, err := os.ReadDir(filepath.Join(sysPCI, device.PCIAddress, "net"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	var best netlink.Link
	for _, link := range links {
		attrs := link.Attrs()
		if !slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return entry.Name() == attrs.Name }) {
			continue
		}
		if best == nil || matches(attrs, device) > matches(best.Attrs(), device) {
			best = link
		}
	}
	if best == nil {
		return nil, fmt.Errorf("device %s (PCI %s) has no link on the host: %w", device.Name, device.PCIAddress, os.ErrNotExist)
	}
	return best, nil
}

// applyBaseline changes only what is not as it was.
func applyBaseline(handle *netlink.Handle, link netlink.Link, device *Device) error {
	attrs := link.Attrs()
	up := attrs.Flags&net.FlagUp != 0
	if attrs.Name != device.IfName {
		up = false // a link that gets a name is set down
	}
	if err := setNames(handle, link, device, device.IfName); err != nil {
		return err
	}
	if err := setAddress(handle, link, device); err != nil {
		return err
	}
	if device.MTU > 0 && attrs.MTU != device.MTU {
		if err := handle.LinkSetMTU(link, device.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", device.MTU, err)
		}
	}
	switch {
	case device.Up && !up:
		return handle.LinkSetUp(link)
	case !device.Up && up:
		return handle.LinkSetDown(link)
	}
	return nil
}

// setNames gives a link a name, and the alternative names and label of the device's baseline and no others.
func setNames(handle *netlink.Handle, link netlink.Link, device *Device, name string) error {
	attrs := link.Attrs()
	for _, alt := range attrs.AltNames {
		if !slices.Contains(device.AltNames, alt) {
			if err := handle.LinkDelAltName(link, alt); err != nil {
				return fmt.Errorf("alternative name %s: %w", alt, err)
			}
		}
	}
	if attrs.Name != name {
		if err := rename(handle, link, name); err != nil {
			return err
		}
	}
	for _, alt := range device.AltNames {
		if !slices.Contains(attrs.AltNames, alt) {
			if err := handle.LinkAddAltName(link, alt); err != nil {
				return fmt.Errorf("alternative name %s: %w", alt, err)
			}
		}
	}
	if attrs.Alias != device.Alias {
		if err := handle.LinkSetAlias(link, device.Alias); err != nil {
			return fmt.Errorf("alias %q: %w", device.Alias, err)
		}
	}
	return nil
}

func setAddress(handle *netlink.Handle, link netlink.Link, device *Device) error {
	mac, err := net.ParseMAC(device.MAC)
	if err != nil || link.Attrs().HardwareAddr.String() == mac.String() {
		return nil //nolint:nilerr // links without an address have none to be set
	}
	if err := handle.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("address %s: %w", mac, err)
	}
	return nil
}

// rename sets the link down first, as older kernels want it. One of its own alternative names must go to become its name.
func rename(handle *netlink.Handle, link netlink.Link, name string) error {
	if slices.Contains(link.Attrs().AltNames, name) {
		if err := handle.LinkDelAltName(link, name); err != nil {
			return err
		}
	}
	if err := handle.LinkSetDown(link); err != nil {
		return err
	}
	if err := handle.LinkSetName(link, name); err != nil {
		return fmt.Errorf("name %s: %w", name, err)
	}
	return nil
}

// differences lists what is not as the baseline says.
func differences(attrs *netlink.LinkAttrs, device *Device) []string {
	var wrong []string
	differs := func(what string, is, was any) {
		if is != was {
			wrong = append(wrong, fmt.Sprintf("%s is %v, was %v", what, is, was))
		}
	}
	differs("name", attrs.Name, device.IfName)
	if device.MAC != "" {
		differs("address", attrs.HardwareAddr.String(), device.MAC)
	}
	if device.MTU > 0 {
		differs("MTU", attrs.MTU, device.MTU)
	}
	differs("up", attrs.Flags&net.FlagUp != 0, device.Up)
	if is := slices.Sorted(slices.Values(attrs.AltNames)); !slices.Equal(is, device.AltNames) {
		differs("alternative names", strings.Join(is, " "), strings.Join(device.AltNames, " "))
	}
	differs("alias", attrs.Alias, device.Alias)
	return wrong
}

// Undress leaves the address of hardware alone: it is found by its PCI address, and a physical function may have a say.
func (LinuxHost) Undress(path string, index int, device Device) error {
	err := inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		if device.PCIAddress == "" {
			if err := setAddress(handle, link, &device); err != nil {
				return err
			}
		}
		for _, alt := range link.Attrs().AltNames {
			if !slices.Contains(device.AltNames, alt) {
				if err := handle.LinkDelAltName(link, alt); err != nil {
					return fmt.Errorf("alternative name %s: %w", alt, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot prepare device %s in %s to come home: %w", device.Name, path, err)
	}
	return nil
}

// SendHome moves a link to the host. On its way it has a name that nothing else has: its own may be taken on either side.
func (LinuxHost) SendHome(path string, index int, device Device) error {
	home, err := netns.Get() // of this thread, which is in the host's like every other
	if err != nil {
		return fmt.Errorf("cannot bring device %s home: %w", device.Name, err)
	}
	defer func() { _ = home.Close() }()
	err = inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		if err := setNames(handle, link, &Device{}, transitName(&device)); err != nil {
			return err
		}
		return handle.LinkSetNsFd(link, int(home))
	})
	if err != nil {
		return fmt.Errorf("cannot bring device %s home from %s: %w", device.Name, path, err)
	}
	return nil
}

// transitName is unique on a node, as device identities are.
func transitName(device *Device) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(device.Identity()))
	return fmt.Sprintf("dra-%08x", hash.Sum32())
}

// Remove deletes a virtual link.
func (LinuxHost) Remove(path string, index int) error {
	err := inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return err
		}
		return handle.LinkDel(link)
	})
	if err != nil {
		return fmt.Errorf("cannot delete link %d of %s: %w", index, path, err)
	}
	return nil
}
