package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// What is done to devices that are in a pod.

// ResetInPod leaves the address of hardware alone: it is found by its PCI address, and a physical function may have a
// say.
func (Linux) ResetInPod(path string, seen cnichain.Link, device cnichain.Device) error {
	err := inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(seen.Index)
		if err != nil {
			return err
		}
		if link.Attrs().MasterIndex != 0 {
			if err := handle.LinkSetNoMaster(link); err != nil {
				return fmt.Errorf("master: %w", err)
			}
			if link, err = handle.LinkByIndex(seen.Index); err != nil { // leaving a bond changes addresses
				return err
			}
		}
		return resetInPod(handle, link, &seen, &device)
	})
	if err != nil {
		return fmt.Errorf("cannot reset device %s in %s for its return to the host: %w", device.Name, path, err)
	}
	return nil
}

// resetInPod resets, while the link is in the pod, what could collide with links of the host: its alias, its address if
// no PF is asked for that, and alternative names that the pod gave it, of which one that is taken on the host would
// make the move fail.
func resetInPod(handle *netlink.Handle, link netlink.Link, seen *cnichain.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	if attrs.Alias != seen.Alias { // in which some plugins keep the device's name
		if err := handle.LinkSetAlias(link, seen.Alias); err != nil {
			return fmt.Errorf("alias %q: %w", seen.Alias, err)
		}
	}
	if device.PCIAddress == "" {
		if err := setAddress(handle, link, device); err != nil {
			return err
		}
	}
	for _, alt := range attrs.AltNames {
		if device.Kind != "" && !slices.Contains(device.AltNames, alt) {
			if err := handle.LinkDelAltName(link, alt); err != nil {
				return fmt.Errorf("alternative name %s: %w", alt, err)
			}
		}
	}
	return nil
}

// MoveToHost moves a link to the host. On its way it has a name that nothing else has: its own may be taken on either
// side.
//
// A driver that is killed after the move leaves the link under that name, by which Restore knows it. The kernel sets a
// link down when it moves, and drops its addresses and routes.
func (Linux) MoveToHost(path string, index int, device cnichain.Device) error {
	hostNetns, err := netns.Get() // of this thread, which is in the host's like every other
	if err != nil {
		return fmt.Errorf("cannot return device %s to the host: %w", device.Name, err)
	}
	defer func() { _ = hostNetns.Close() }()
	err = inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		// the host may have links of these names
		if err := setNames(handle, link, &cnichain.Device{}, transitName(&device)); err != nil {
			return err
		}
		// Hardware would come back by itself when the namespace ends, under a name that the kernel chooses (dev%d if
		// its own is taken). A virtual link would be deleted.
		return handle.LinkSetNsFd(link, int(hostNetns))
	})
	if err != nil {
		return fmt.Errorf("cannot return device %s to the host from %s: %w", device.Name, path, err)
	}
	return nil
}

// transitName is what a device is called on its way to the host, derived from what is unique on a node.
func transitName(device *cnichain.Device) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(device.Identity()))
	return fmt.Sprintf("dra-%08x", hash.Sum32())
}

var transitNames = regexp.MustCompile(`^dra-[0-9a-f]{8}$`)

// IsTransitName reports whether a link has a name that devices have on their way to the host only. One that keeps it
// was left by a driver that was killed.
func IsTransitName(name string) bool { return transitNames.MatchString(name) }

// Remove deletes a virtual link.
func (Linux) Remove(path string, index int) error {
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
