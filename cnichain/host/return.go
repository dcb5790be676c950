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

// This file has the operations on devices in a pod.

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

// resetInPod resets properties in the pod that could conflict with links of the host: the alias, the address unless a
// PF stores it, and alternative names that the pod added. An alternative name that is in use on the host would make the
// move fail.
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

// Isolate gives the link its name in a second step, when no application can interfere: with names and alternative names
// of its own choice an application could make the move fail if it had one.
func (h Linux) Isolate(path string, index int, target, name string) (cnichain.Link, error) {
	link, err := h.isolate(path, index, target, name)
	if err != nil {
		return link, fmt.Errorf("cannot move link %d out of the reach of its pod, from %s to %s: %w", index, path,
			target, err)
	}
	return link, nil
}

// Destroyed asks about the other end of a pair, which the kernel deletes together with the device, and for a VLAN
// whether its parent has one with its ID.
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

// makeReturnNamespace makes a namespace without a link whose name an application could know: not even its loopback
// device is called lo.
func (h Linux) makeReturnNamespace(path string) error {
	if !h.Exists(path) {
		if err := errors.Join(h.Unpin(path), NewNamespace(path)); err != nil { // a crash may leave an empty file
			return err
		}
	}
	return inNamespace(path, func(handle *netlink.Handle) error {
		lo, err := handle.LinkByName("lo")
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil // it has its name
		}
		if err != nil {
			return err
		}
		return handle.LinkSetName(lo, fmt.Sprintf("x%012x", rand.Uint64()>>16))
	})
}

// moveLink moves a link from one namespace to another and keeps its index. Kernels before 5.13 choose the index
// themselves, and then the link is not found.
func moveLink(path string, index int, target string) error {
	source, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	destination, err := netns.GetFromPath(target)
	if err != nil {
		return err
	}
	defer func() { _ = destination.Close() }()
	socket, err := nl.GetNetlinkSocketAt(source, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's own
	request.AddData(header)
	fd, number := nl.Uint32Attr(uint32(destination)), nl.Uint32Attr(uint32(index)) //nolint:gosec // not negative
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, fd))
	request.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, number))
	_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// MoveToHost moves a link to the host. On its way it has a unique name, since its own may be in use on either side.
//
// If the driver is killed after the move, the link keeps that name, by which Restore finds it. The kernel sets a link
// down when it moves, and drops its addresses and routes.
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
		// Hardware would return itself when the namespace ends, under a name that the kernel chooses (dev%d if its own
		// is in use). A virtual link would be deleted.
		return handle.LinkSetNsFd(link, int(hostNetns))
	})
	if err != nil {
		return fmt.Errorf("cannot return device %s to the host from %s: %w", device.Name, path, err)
	}
	return nil
}

// transitName is the name of a device on its way to the host, derived from its identity, which is unique on a node.
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
