package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// This file implements operations on devices in a pod.

// ResetInPod does not change the MAC address of hardware, because hardware is found by PCI address, and its MAC address
// may be controlled by the physical function.
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
			if link, err = handle.LinkByIndex(seen.Index); err != nil { // leaving a bond changes the MAC address
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

// resetInPod resets properties in the pod that could conflict with links on the host: the alias, the MAC address of a
// virtual link, and alternative names that were added in the pod. An alternative name that is in use on the host would
// cause the move to fail.
func resetInPod(handle *netlink.Handle, link netlink.Link, seen *cnichain.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	if attrs.Alias != seen.Alias { // some plugins store the device's name in the alias
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

// Isolate renames the link after the move, when applications can no longer interfere. If it renamed the link in the
// pod, an application could cause the move to fail through its choice of names and alternative names.
func (h Linux) Isolate(path string, index int, target, name string) (cnichain.Link, error) {
	link, err := h.isolate(path, index, target, name)
	if err != nil {
		return link, fmt.Errorf("cannot move link %d out of the reach of its pod, from %s to %s: %w", index, path,
			target, err)
	}
	return link, nil
}

// Destroyed looks for the other end of a pair, which the kernel deletes together with the device. For a VLAN, it checks
// whether the parent still has a VLAN with the same ID.
func (h Linux) Destroyed(device cnichain.Device) (destroyed, known bool, err error) {
	if !device.PeerOnHost && (device.VLANProtocol == "" || device.StandsOn == nil) {
		return false, false, nil
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, false, err
	}
	defer handle.Close()
	other, err := handle.LinkByIndex(device.Parent)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return true, true, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("cannot find out whether device %s exists: %w", device.Name, err)
	}
	if device.PeerOnHost {
		return other.Type() != device.Kind, true, nil
	}
	protocol := netlink.StringToVlanProtocol(device.VLANProtocol)
	err = inScratchNamespace(func(scratch int) error {
		exists, err := hasVLAN(other.Attrs(), scratch, protocol, device.VLANID)
		destroyed = !exists
		return err
	})
	return destroyed, err == nil, err
}

func (h Linux) isolate(path string, index int, target, name string) (moved cnichain.Link, err error) {
	if err := h.makeReturnNamespace(target); err != nil {
		return moved, err
	}
	if path != target {
		if err := moveLink(path, index, target); err != nil {
			return moved, err
		}
	}
	err = inNamespace(target, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		return setNames(handle, link, &cnichain.Device{Baseline: cnichain.Baseline{Alias: link.Attrs().Alias}}, name)
	})
	if err != nil {
		return moved, err
	}
	links, err := h.Links(target)
	if i := slices.IndexFunc(links, func(link cnichain.Link) bool { return link.Index == index }); i >= 0 {
		return links[i], err
	}
	return moved, errors.Join(err, fmt.Errorf("link %d: %w", index, os.ErrNotExist))
}

// makeReturnNamespace creates a namespace with no link names that an application could guess: not even the loopback
// device keeps its name, lo.
func (h Linux) makeReturnNamespace(path string) error {
	if !h.Exists(path) {
		if err := errors.Join(h.Unpin(path), NewNamespace(path)); err != nil { // a crash may leave an empty file
			return err
		}
	}
	return inNamespace(path, func(handle *netlink.Handle) error {
		lo, err := handle.LinkByName("lo")
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil // already renamed
		}
		if err != nil {
			return err
		}
		return handle.LinkSetName(lo, fmt.Sprintf("x%012x", rand.Uint64()>>16))
	})
}

// moveLink moves a link to another namespace and keeps its index. Kernels before 5.13 choose the index themselves, so
// Isolate will not find the link afterwards.
func moveLink(path string, index int, target string) error {
	destination, err := netns.GetFromPath(target)
	if err != nil {
		return err
	}
	defer func() { _ = destination.Close() }()
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's own
	request.AddData(header)
	fd, number := nl.Uint32Attr(uint32(destination)), nl.Uint32Attr(uint32(index)) //nolint:gosec // not negative
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, fd))
	request.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, number))
	return executeIn(path, request)
}

// executeIn sends a request in the namespace at the given path.
func executeIn(path string, request *nl.NetlinkRequest) error {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }()
	socket, err := nl.GetNetlinkSocketAt(namespace, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// MoveToHost moves a link to the host. The link is given a unique transit name, since its own name may be in use in
// either namespace.
//
// If the driver is killed after the move, the link keeps the transit name, and Restore finds the link by that name.
// When a link moves, the kernel sets it down and drops its addresses and routes.
func (Linux) MoveToHost(path string, index int, device cnichain.Device) error {
	hostNetns, err := netns.Get() // like all other threads, this one is in the host's namespace
	if err != nil {
		return fmt.Errorf("cannot return device %s to the host: %w", device.Name, err)
	}
	defer func() { _ = hostNetns.Close() }()
	err = inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		// The host may already have links with these names.
		if err := setNames(handle, link, &cnichain.Device{}, transitName(&device)); err != nil {
			return err
		}
		// Without this, once the namespace was destroyed, the kernel would return hardware to the host, renamed to
		// dev%d if its name is in use, and would delete virtual links.
		return handle.LinkSetNsFd(link, int(hostNetns))
	})
	if err != nil {
		return fmt.Errorf("cannot return device %s to the host from %s: %w", device.Name, path, err)
	}
	return nil
}

// transitName returns the name for a device on its way to the host. The name is derived from the device's identity,
// which is unique on a node.
func transitName(device *cnichain.Device) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(device.Identity()))
	return fmt.Sprintf("dra-%08x", hash.Sum32())
}

var transitNames = regexp.MustCompile(`^dra-[0-9a-f]{8}$`)

// IsTransitName reports whether a name is a transit name, which only devices on their way to the host have. If a link
// is left with a transit name, the driver was killed while returning it.
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
