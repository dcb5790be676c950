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

// findDevice finds hardware by its PCI address, and a virtual device by properties that no other link can have. Since
// callers may rename the link, set it down or move it, findDevice returns a link only if it is proven to be the device.
//
// It lists all links only if it has to: the list is long, and to produce it, the kernel queries the hardware for the
// state of all virtual functions.
func findDevice(handle *netlink.Handle, device *cnichain.Device) (link netlink.Link, err error) {
	switch {
	case device.PCIAddress != "":
		return findByPCI(handle, device)
	case device.BootID == "": // the baseline has not been read yet
		link, err = linkNamed(handle, device.IfName)
	default:
		if link, err = findUnmoved(handle, device); link != nil || err != nil {
			break
		}
		var links []netlink.Link
		links, err = listLinks(handle)
		link = findVirtual(links, device)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look up device %s: %w", device.Name, err)
	}
	if link != nil {
		return link, nil
	}
	return nil, fmt.Errorf("device %s: the host has no link %s (index %d, address %s): %w", device.Name, device.IfName,
		device.Index, device.MAC, os.ErrNotExist)
}

// linkNamed returns the link with a name, or nil if there is none. It ignores links that have this name only as an
// alternative name, which the kernel would also return.
func linkNamed(handle *netlink.Handle, name string) (netlink.Link, error) {
	link, err := handle.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) || err == nil && link.Attrs().Name != name {
		return nil, nil
	}
	return link, err
}

// findUnmoved returns a virtual device's link if the link still has both its name and its index, since no other link
// can then have them, and nil otherwise. Any link that it returns is the one that findVirtual would find.
func findUnmoved(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, error) {
	link, err := linkNamed(handle, device.IfName)
	if link == nil || err != nil || link.Attrs().Index != device.Index || device.Kind != "" && link.Type() != device.Kind ||
		!isDeviceOnHost(link, device) {
		return nil, err
	}
	if transit, err := linkNamed(handle, transitName(device)); transit != nil || err != nil {
		return nil, err
	}
	return link, nil
}

// findVirtual finds the link of a virtual device with a baseline from this boot, and returns nil if there is none. It
// prefers a link with the device's transit name, which only the driver assigns, over a similar link that another
// process may have created in the meantime.
//
// For example, suppose that the driver is killed while returning eth5 from a pod, and that an administrator then
// creates another eth5. The device is found by its transit name, dra-1a2b3c4d, and the new eth5 is left alone.
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

// isDeviceOnHost reports whether a link of the device's kind is proven to be the virtual device, given a baseline from
// this boot. The kernel allows only one VLAN with a given ID and protocol on a parent. Links of other kinds must match
// at least two of name, index and MAC address, because any one of these may have changed or may now be used by another
// link.
func isDeviceOnHost(link netlink.Link, device *cnichain.Device) bool {
	attrs := link.Attrs()
	if device.Index == 0 { // no boot ID was recorded, so the index may be from an earlier boot
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

// matches returns how many of the name, index and MAC address match.
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

// findByPCI returns the function's link for the device's port. If several links match equally well, it returns the
// oldest one, that is, the one with the lowest index.
//
// A function can have several links, for example if a NIC has two ports on one function, or if its virtual functions
// have representors. dev_port and phys_port_name distinguish these links, and do not change when links are renamed.
func findByPCI(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, error) {
	var best netlink.Link
	for link, err := range linksOfFunction(handle, device.PCIAddress) {
		if err != nil {
			return nil, fmt.Errorf("cannot look up device %s: %w", device.Name, err)
		}
		attrs := link.Attrs()
		if device.Kind != "" && portOf(attrs.Name) != device.Port { // if the kind is unknown, there is no baseline yet
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

// linksOfFunction yields a PCI function's links on the host, ordered by name, or an error, which ends the sequence.
// With virtio, there is a virtio device between a function and its links. The links are looked up lazily, because a
// physical function may have a representor for each of its virtual functions.
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

// linkAt returns the link with the given sysfs directory, or nil if the link no longer exists. It looks up the link by
// index, which stays the same if the link is renamed concurrently.
func linkAt(handle *netlink.Handle, path string) (netlink.Link, error) {
	index, err := readIndex(path)
	// For a link that is being unregistered, the kernel first returns EINVAL (netdev_show), and ENODEV shortly
	// afterwards.
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

// belongsTo reports whether a link belongs to the device whose links are listed in the given sysfs directory. While the
// device's link is being moved to another network namespace, sysfs may already show the link's index in the new
// namespace, and another link in this namespace may have that index (__dev_change_net_namespace).
func belongsTo(attrs *netlink.LinkAttrs, dir string) bool {
	if attrs.ParentDev != "" {
		return attrs.ParentDev == filepath.Base(filepath.Dir(dir))
	}
	// Kernels before 5.14 do not report the parent device of a link (IFLA_PARENT_DEV_NAME).
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
