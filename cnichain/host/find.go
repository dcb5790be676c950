package host

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// findDevice finds hardware by its PCI address, and a virtual device by properties that no other link can have. Callers
// may rename, set down and move the link, so it never returns a link that is not proven to be the device.
//
// It only lists links if it needs all of them: a list is long, and for it the kernel queries the hardware for the state
// of all virtual functions.
func findDevice(handle *netlink.Handle, device *cnichain.Device) (link netlink.Link, err error) {
	switch {
	case device.PCIAddress != "":
		return findByPCI(handle, device)
	case device.BootID == "": // the baseline is still to be read
		link, err = linkNamed(handle, device.IfName)
	default:
		var links []netlink.Link
		links, err = listLinks(handle)
		link = findVirtual(links, device)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	if link != nil {
		return link, nil
	}
	return nil, fmt.Errorf("device %s: the host has no link %s (index %d, address %s): %w", device.Name, device.IfName,
		device.Index, device.MAC, os.ErrNotExist)
}

// linkNamed is nil if no link has the name. The kernel finds links by their alternative names as well, which are not
// meant.
func linkNamed(handle *netlink.Handle, name string) (netlink.Link, error) {
	link, err := handle.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) || err == nil && link.Attrs().Name != name {
		return nil, nil
	}
	return link, err
}

// findVirtual finds a device with a baseline of this boot. It prefers a link with the name of devices on their way to
// the host, which only the driver assigns: another process may have created a similar link meanwhile. Nil if there is
// none.
//
// For example, the driver was killed while it returned eth5 from a pod, and an administrator created another eth5
// meanwhile. The device is called dra-1a2b3c4d and is found by that name. The other link stays unchanged.
func findVirtual(links []netlink.Link, device *cnichain.Device) netlink.Link {
	var found netlink.Link
	for _, link := range links {
		switch {
		case device.Kind != "" && link.Type() != device.Kind:
		case link.Attrs().Name == transitName(device):
			return link
		case found == nil && isDeviceOnHost(link, device):
			found = link
		}
	}
	return found
}

// isDeviceOnHost says whether a link of the device's kind is proven to be the virtual device, with a baseline of this
// boot. Of one parent the kernel makes only one VLAN with an ID and a protocol. Other links are the device if two of
// name, index and address are its own: any one of them may have changed, or belong to another by now.
func isDeviceOnHost(link netlink.Link, device *cnichain.Device) bool {
	attrs := link.Attrs()
	if device.Index == 0 { // recorded without a boot: indexes may belong to an earlier one
		return attrs.Name == device.IfName && sameAddress(attrs, device)
	}
	if !linkkind.IsPair(device.Kind) && attrs.ParentIndex != device.Parent {
		return false
	}
	if vlan, ok := link.(*netlink.Vlan); ok {
		return vlan.VlanId == device.VLANID && vlan.VlanProtocol.String() == device.VLANProtocol
	}
	return matches(attrs, device) >= 2
}

// matches counts what of name, index and address is the device's.
func matches(attrs *netlink.LinkAttrs, device *cnichain.Device) int {
	count := 0
	for _, equal := range []bool{attrs.Name == device.IfName, attrs.Index == device.Index, sameAddress(attrs, device)} {
		if equal {
			count++
		}
	}
	return count
}

func sameAddress(attrs *netlink.LinkAttrs, device *cnichain.Device) bool {
	return device.HasUniqueMAC() && attrs.HardwareAddr.String() == device.MAC
}

// findByPCI returns the link of the function that is on the same port. Of several equally matching links, it returns
// the oldest, which has the lowest index.
//
// A function can have several links: a NIC with two ports on one function, or the representors of its virtual
// functions. dev_port and phys_port_name distinguish them, and do not change with names.
func findByPCI(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, error) {
	var best netlink.Link
	for link, err := range linksOfFunction(handle, device.PCIAddress) {
		if err != nil {
			return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
		}
		attrs := link.Attrs()
		if device.Kind != "" && portOf(attrs.Name) != device.Port { // without a kind the baseline is still to be read
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(matches(attrs, device), matches(best.Attrs(), device)),
			cmp.Compare(best.Attrs().Index, attrs.Index)) > 0 {
			best = link
		}
	}
	if best == nil {
		return nil, fmt.Errorf("device %s (PCI %s) has no link on the host: %w", device.Name, device.PCIAddress,
			os.ErrNotExist)
	}
	return best, nil
}

// linksOfFunction yields a PCI function's links on the host, in the order of their names, or an error that ends the
// sequence. A virtio device is between a function and its links. Each link is looked up on demand: a physical function
// may have a representor for each of its virtual ones.
func linksOfFunction(handle *netlink.Handle, address string) iter.Seq2[netlink.Link, error] {
	return func(yield func(netlink.Link, error) bool) {
		for _, between := range []string{"", "virtio*"} {
			paths, err := filepath.Glob(filepath.Join(sysPCI, address, between, "net", "*"))
			if err != nil {
				yield(nil, err)
				return
			}
			for _, path := range paths {
				link, err := linkAt(handle, path)
				if link == nil && err == nil {
					continue
				}
				if !yield(link, err) || err != nil {
					return
				}
			}
		}
	}
}

// linkAt is the link whose directory in sysfs is at a path, nil if it has gone. It is found by its index, which it
// keeps when names change at this moment.
func linkAt(handle *netlink.Handle, path string) (netlink.Link, error) {
	index, err := readIndex(path)
	// The kernel says EINVAL of a link that is being unregistered (netdev_show), and ENODEV a moment later.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	link, err := handle.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) || err == nil && !belongsTo(link.Attrs(), filepath.Dir(path)) {
		return nil, nil
	}
	return link, err
}

// belongsTo says whether a link is of the device whose links are in a directory of sysfs. One that moves to another
// network namespace at this moment may have its index there already, which sysfs shows, and which is another link's
// here (__dev_change_net_namespace).
func belongsTo(attrs *netlink.LinkAttrs, dir string) bool {
	if attrs.ParentDev != "" {
		return attrs.ParentDev == filepath.Base(filepath.Dir(dir))
	}
	// Kernels before 5.14 do not tell on what a link stands (IFLA_PARENT_DEV_NAME).
	index, err := readIndex(filepath.Join(dir, attrs.Name))
	return err == nil && index == attrs.Index
}

func readIndex(path string) (int, error) {
	data, err := os.ReadFile(filepath.Join(path, "ifindex"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
