package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// This file handles links that an application stacked on a device. These links stay stacked on the device when it moves
// to another namespace, but are visible only in their own namespace. In the pod's namespace, the driver finds stacked
// links by their lower link. To detect them in other namespaces, it tries to create a probe link on the device, which
// the kernel allows only if there are no others of that kind.

// RemoveStacked deletes all links in a namespace that are stacked on a device, namely the link with the given index in
// the namespace at lower. The kernel also deletes any links stacked on the deleted ones.
func (Linux) RemoveStacked(path, lower string, index int) error {
	if err := removeStacked(path, lower, index); err != nil {
		return fmt.Errorf("cannot remove the links on link %d from %s: %w", index, path, err)
	}
	return nil
}

// removeStacked repeats its search until it finds no more links: an application can create new ones only while at least
// one exists. It deletes links together as a group, because on every delete request, the kernel waits until no
// processor is using the deleted links.
func removeStacked(path, lower string, index int) error {
	below, err := netns.GetFromPath(lower)
	if err != nil {
		return err
	}
	defer func() { _ = below.Close() }()
	return inNamespace(path, func(handle *netlink.Handle) error {
		const rounds = 20
		group := rand.Uint32()>>1 | 1<<16 // a group that contains no other links
		for range rounds {
			found, err := stackedIn(handle, path == lower, below, index)
			if err != nil || len(found) == 0 {
				return err
			}
			for _, link := range found {
				if err := handle.LinkSetGroup(link, int(group)); err != nil && !errors.Is(err, unix.ENODEV) {
					return fmt.Errorf("%s %s: %w", link.Type(), link.Attrs().Name, err)
				}
			}
			if err := deleteGroup(path, group); err != nil {
				return err
			}
		}
		return fmt.Errorf("an application creates new ones faster than they are removed; end its containers")
	})
}

// deleteGroup deletes all links of a group in a namespace. It is not an error if the group is empty.
func deleteGroup(path string, group uint32) error {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if err := executeIn(path, request); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// stackedIn lists the links in a namespace that are stacked on the link with the given index in the same or another
// namespace.
func stackedIn(handle *netlink.Handle, same bool, lower netns.NsHandle, index int) ([]netlink.Link, error) {
	// number is the ID of the lower link's namespace within this namespace. The kernel assigns this ID the first time
	// it lists a link that refers to the lower link's namespace, so list the links first.
	links, err := listLinks(handle)
	if err != nil {
		return nil, err
	}
	number := -1
	if !same {
		if number, err = handle.GetNetNsIdByFd(int(lower)); err != nil {
			return nil, err
		}
		if number < 0 {
			return nil, nil
		}
	}
	return slices.DeleteFunc(links, func(link netlink.Link) bool {
		attrs := link.Attrs()
		return attrs.ParentIndex != index || attrs.NetNsID != number || attrs.Index == index && same ||
			linkkind.IsPair(link.Type())
	}), nil
}

// checkUnstacked returns an error if a link in another namespace receives a host device's frames. A receiving link on
// the host is assumed to be the administrator's.
//
// Every link that receives another link's frames registers that link's only receive handler (rx_handler in struct
// net_device): macvlan, ipvlan, macsec, and the ports of bridges, bonds, teams, HSR and Open vSwitch. VLANs do not.
// VLANs in the pod's namespace are deleted, but checking for VLANs in other namespaces would take 8,190 requests to the
// kernel. Other kinds, such as tunnels, refer to the device by its index in their own namespace, so they lose the
// device when it moves.
func checkUnstacked(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	// If a macvlan is created on top of a macvlan, the kernel attaches it to that macvlan's parent, which is shared, so
	// the check would prove nothing about the device.
	if attrs.EncapType != "ether" || attrs.Flags&unix.IFF_LOOPBACK != 0 || link.Type() == "macvlan" {
		return nil
	}
	visible, err := hasReceiver(handle, attrs)
	if err != nil || visible {
		return err
	}
	free := false
	err = inScratchNamespace(func(scratch int) error {
		free, err = hasNoReceiver(attrs.Index, scratch)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot prove that no link of another namespace is on device %s: %w", device.Name, err)
	}
	if !free {
		return fmt.Errorf("device %s is still used by an earlier pod: a macvlan, an ipvlan or a port of another "+
			"network namespace is stacked on it; end the process that keeps this namespace", device.Name)
	}
	return nil
}

// hasReceiver reports whether another link on the host receives a link's frames.
func hasReceiver(handle *netlink.Handle, attrs *netlink.LinkAttrs) (bool, error) {
	if attrs.MasterIndex != 0 {
		return true, nil
	}
	links, err := listLinks(handle)
	return slices.ContainsFunc(links, func(link netlink.Link) bool {
		return link.Attrs().ParentIndex == attrs.Index && link.Attrs().NetNsID < 0 &&
			link.Type() != cnichain.KindVLAN && !linkkind.IsPair(link.Type())
	}), err
}

// inScratchNamespace calls a function with a new network namespace, for links that must not be visible elsewhere on the
// node. The calling thread stays in the host's namespace.
func inScratchNamespace(do func(scratch int) error) error {
	host, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	return onOwnThread(func() error {
		scratch, err := netns.New()
		if err != nil {
			return fmt.Errorf("cannot create a network namespace: %w", err)
		}
		defer func() { _ = scratch.Close() }()
		if err := netns.Set(host); err != nil {
			return err
		}
		return do(int(scratch))
	})
}

// hasNoReceiver reports whether no other link receives a link's frames. It tries to create a macvlan in passthru mode,
// which the kernel rejects if there is a receiver (macvlan_common_newlink, netdev_rx_handler_register), and then
// deletes the macvlan.
func hasNoReceiver(index, scratch int) (bool, error) {
	const name = "probe"
	mode := nl.NewRtAttr(unix.IFLA_INFO_DATA, nil)
	mode.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(nl.MACVLAN_MODE_PASSTHRU))
	err := makeIn(scratch, index, name, "macvlan", mode)
	switch {
	case err == nil:
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return false, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return true, nil // the kernel or the link does not support macvlan
	default:
		return false, fmt.Errorf("macvlan: %w", err)
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(scratch), unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer handle.Close()
	link, err := handle.LinkByName(name)
	if err != nil {
		return false, err
	}
	return true, handle.LinkDel(link)
}

// makeIn creates a link in the scratch namespace on top of a lower link in the calling thread's namespace.
func makeIn(scratch, index int, name, kind string, data *nl.RtAttr, more ...*nl.RtAttr) error {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	info.AddChild(data)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(index))))        //nolint:gosec // the kernel's own
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(scratch)))) //nolint:gosec // a descriptor
	request.AddData(info)
	for _, attribute := range more {
		request.AddData(attribute)
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// hasVLAN reports whether a link has a given VLAN, in any namespace. It sends a request to create the VLAN that the
// kernel always rejects: with EEXIST if the VLAN exists (vlan_check_real_dev), and otherwise with EINVAL, because the
// requested MTU exceeds the link's MTU, which the kernel checks later (vlan_newlink).
func hasVLAN(attrs *netlink.LinkAttrs, scratch int, protocol netlink.VlanProtocol, id int) (bool, error) {
	data := nl.NewRtAttr(unix.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(uint16(id)))                                  //nolint:gosec // 12 bits
	data.AddRtAttr(nl.IFLA_VLAN_PROTOCOL, binary.BigEndian.AppendUint16(nil, uint16(protocol))) //nolint:gosec // 16 bits
	tooLarge := nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(attrs.MTU)+1))                 //nolint:gosec // 16 bits
	err := makeIn(scratch, attrs.Index, "probe", "vlan", data, tooLarge)
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
		return false, fmt.Errorf("VLAN %d: the kernel answered %w", id, errors.Join(err, errUnexpected))
	}
	return errors.Is(err, unix.EEXIST), nil
}

var errUnexpected = errors.New("and not EEXIST or EINVAL")
