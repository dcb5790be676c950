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

// Links that an application stacked on a device. The kernel keeps them on the device when it changes its namespace, and
// shows them only in their own namespace. In a namespace that the driver can enter they are found by name; for all
// others the kernel is asked to put a link of the same type on the device, which it refuses if there is one.

// RemoveStacked deletes all links of a namespace that are stacked on a device, which is the link with an index in the
// namespace at lower. Links that are stacked on these are deleted by the kernel.
func (Linux) RemoveStacked(path, lower string, index int) error {
	if err := removeStacked(path, lower, index); err != nil {
		return fmt.Errorf("cannot remove the links on link %d from %s: %w", index, path, err)
	}
	return nil
}

// removeStacked repeats its search while it finds links: an application that makes new ones can do so only for as long
// as one of them exists. Links are deleted by their group, all at once: for each request the kernel waits until no
// processor uses what it deletes.
func removeStacked(path, lower string, index int) error {
	below, err := netns.GetFromPath(lower)
	if err != nil {
		return err
	}
	defer func() { _ = below.Close() }()
	return inNamespace(path, func(handle *netlink.Handle) error {
		const rounds = 20
		group := rand.Uint32()>>1 | 1<<16 // that no other link has
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
		return fmt.Errorf("an application makes new ones faster than they are removed; end its containers")
	})
}

// deleteGroup deletes all links of a group in a namespace. A group without links is no error.
func deleteGroup(path string, group uint32) error {
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
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// stackedIn lists the links of a namespace that are stacked on the link with an index, in the same namespace or in
// another one.
func stackedIn(handle *netlink.Handle, same bool, lower netns.NsHandle, index int) ([]netlink.Link, error) {
	// The number that the namespace has for the one of the lower link. The kernel assigns it when it first shows a link
	// that needs it, so the links are listed first.
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

// checkUnstacked returns an error if a link of another namespace is stacked on a device of the host. Links of the host
// that are stacked on it belong to the administrator.
//
// Every link that receives the frames of another registers a handler for them, of which there is one (rx_handler of
// struct net_device): macvlan, ipvlan, macsec, and the ports of bridges, bonds, teams, HSR and Open vSwitch. VLANs have
// a table of their own. Other kinds, such as tunnels, find their device by its index in their own namespace, so
// that they lose it when it moves.
func checkUnstacked(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	if attrs.EncapType != "ether" || attrs.Flags&unix.IFF_LOOPBACK != 0 {
		return nil // the kernel stacks nothing on such links that would stay after a move
	}
	visible, err := visibleStacked(handle, attrs)
	if err != nil {
		return fmt.Errorf("cannot list the links on device %s: %w", device.Name, err)
	}
	var found string
	err = inScratchNamespace(func(scratch int) error {
		// A macvlan on a macvlan is one on its parent, which is shared and says nothing about the device.
		if !visible.receives && link.Type() != "macvlan" {
			if found, err = probeReceiver(attrs.Index, scratch); err != nil || found != "" {
				return err
			}
		}
		found, err = probeVLANs(attrs, scratch, visible.vlans)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot prove that no link of another namespace is on device %s: %w", device.Name, err)
	}
	if found != "" {
		return fmt.Errorf("device %s is still used by an earlier pod: %s of another network namespace is stacked on "+
			"it; end the process that keeps this namespace", device.Name, found)
	}
	return nil
}

// stacked are the links of the host on a device.
type stacked struct {
	receives bool // one of them receives all frames
	vlans    map[vlanKey]bool
}

type vlanKey struct {
	protocol uint16
	id       uint16
}

func visibleStacked(handle *netlink.Handle, attrs *netlink.LinkAttrs) (stacked, error) {
	visible := stacked{receives: attrs.MasterIndex != 0, vlans: map[vlanKey]bool{}}
	links, err := listLinks(handle)
	for _, link := range links {
		if link.Attrs().ParentIndex != attrs.Index || link.Attrs().NetNsID >= 0 || linkkind.IsPair(link.Type()) {
			continue
		}
		if vlan, ok := link.(*netlink.Vlan); ok {
			visible.vlans[vlanKey{uint16(vlan.VlanProtocol), uint16(vlan.VlanId)}] = true //nolint:gosec // 12 bits
			continue
		}
		visible.receives = true
	}
	return visible, err
}

// inScratchNamespace runs a function with a network namespace of its own, in which links are made that nothing else
// on the node sees. The calling thread stays in the host's.
func inScratchNamespace(do func(scratch int) error) error {
	host, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	return onOwnThread(func() error {
		scratch, err := netns.New()
		if err != nil {
			return fmt.Errorf("cannot make a network namespace: %w", err)
		}
		defer func() { _ = scratch.Close() }()
		if err := netns.Set(host); err != nil {
			return err
		}
		return do(int(scratch))
	})
}

// probeReceiver makes a macvlan in passthru mode on a link, which the kernel refuses if anything receives the link's
// frames (macvlan_common_newlink, netdev_rx_handler_register), and deletes it.
func probeReceiver(index, scratch int) (found string, err error) {
	const name = "probe"
	mode := nl.NewRtAttr(unix.IFLA_INFO_DATA, nil)
	mode.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(nl.MACVLAN_MODE_PASSTHRU))
	err = makeIn(scratch, index, name, "macvlan", mode)
	switch {
	case err == nil:
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return "a macvlan, an ipvlan or a port", nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return "", nil // a kernel without macvlan, or a link on which it makes none
	default:
		return "", fmt.Errorf("macvlan: %w", err)
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(scratch), unix.NETLINK_ROUTE)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	link, err := handle.LinkByName(name)
	if err != nil {
		return "", err
	}
	return "", handle.LinkDel(link)
}

// makeIn makes a link in a namespace on a link of the calling thread's.
func makeIn(scratch, index int, name, kind string, data *nl.RtAttr) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	for _, attribute := range newLink(scratch, index, name, kind, data) {
		request.AddData(attribute)
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func newLink(scratch, index int, name, kind string, data *nl.RtAttr) []nl.NetlinkRequestData {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	info.AddChild(data)
	return []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(index))),        //nolint:gosec // the kernel's own
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(scratch))), //nolint:gosec // a descriptor
		info,
	}
}

// probeVLANs returns the first VLAN of a link that is not among some. It asks the kernel to make each, in a way that it
// refuses in any case: with EEXIST if there is one (vlan_check_real_dev), and otherwise with EINVAL, since the MTU is
// larger than that of the link, which is checked after that (vlan_newlink).
func probeVLANs(attrs *netlink.LinkAttrs, scratch int, visible map[vlanKey]bool) (found string, err error) {
	batch, err := newBatch()
	if err != nil {
		return "", err
	}
	defer batch.close()
	for _, protocol := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		for first := uint16(0); first < 4096; first += batchSize {
			for id := first; id < first+batchSize; id++ {
				batch.add(newVLAN(attrs, scratch, vlanKey{protocol, id}))
			}
			answers, err := batch.execute()
			if err != nil {
				return "", fmt.Errorf("VLANs: %w", err)
			}
			for i, answer := range answers {
				id := first + uint16(i) //nolint:gosec // below 4096
				switch {
				case errors.Is(answer, unix.EOPNOTSUPP): // neither the kernel nor the link has VLANs
					return "", nil
				case errors.Is(answer, unix.ERANGE): // the kernel has no VLAN 4095 (vlan_validate)
				case errors.Is(answer, unix.EEXIST) && !visible[vlanKey{protocol, id}]:
					return fmt.Sprintf("VLAN %d (%s)", id, netlink.VlanProtocol(protocol)), nil
				case answer == nil, !errors.Is(answer, unix.EINVAL) && !errors.Is(answer, unix.EEXIST):
					return "", fmt.Errorf("VLAN %d: the kernel answered %w", id, errors.Join(answer, errUnexpected))
				}
			}
		}
	}
	return "", nil
}

// newVLAN is a request for a VLAN whose MTU is larger than that of its parent. No link that can have VLANs has the
// largest MTU.
func newVLAN(attrs *netlink.LinkAttrs, scratch int, vlan vlanKey) []nl.NetlinkRequestData {
	data := nl.NewRtAttr(unix.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(vlan.id))
	data.AddRtAttr(nl.IFLA_VLAN_PROTOCOL, binary.BigEndian.AppendUint16(nil, vlan.protocol))
	return append(newLink(scratch, attrs.Index, "probe", "vlan", data),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(attrs.MTU)+1))) //nolint:gosec // 16 bits
}

// hasVLAN reports whether a VLAN exists in any namespace.
func hasVLAN(attrs *netlink.LinkAttrs, scratch int, vlan vlanKey) (bool, error) {
	batch, err := newBatch()
	if err != nil {
		return false, err
	}
	defer batch.close()
	batch.add(newVLAN(attrs, scratch, vlan))
	answers, err := batch.execute()
	if err != nil {
		return false, err
	}
	if !errors.Is(answers[0], unix.EEXIST) && !errors.Is(answers[0], unix.EINVAL) {
		return false, fmt.Errorf("VLAN %d: the kernel answered %w", vlan.id, errors.Join(answers[0], errUnexpected))
	}
	return errors.Is(answers[0], unix.EEXIST), nil
}

var errUnexpected = errors.New("and not EEXIST or EINVAL")

// batchSize is how many requests are sent at once. It divides the number of VLAN IDs.
const batchSize = 128

// batch sends several requests in one message, for which the kernel takes a hundredth of the time of as many calls.
type batch struct {
	socket int
	buffer []byte
	count  uint32
}

func newBatch() (*batch, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	b := &batch{socket: socket}
	// Errors without a copy of the request: the answers must fit into the socket's buffer.
	err = unix.SetsockoptInt(socket, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	if err == nil {
		err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *batch) close() { _ = unix.Close(b.socket) }

// add adds a request that makes a link.
func (b *batch) add(content []nl.NetlinkRequestData) {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.Seq = b.count
	for _, attribute := range content {
		request.AddData(attribute)
	}
	data := request.Serialize()
	b.buffer = append(b.buffer, data...)
	b.buffer = append(b.buffer, make([]byte, (4-len(data)%4)%4)...)
	b.count++
}

// execute returns the answers in the order of the requests, nil for those that succeeded.
func (b *batch) execute() ([]error, error) {
	defer func() { b.buffer, b.count = nil, 0 }()
	if err := unix.Sendto(b.socket, b.buffer, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answers := make([]error, b.count)
	received := make([]byte, 1<<16)
	for missing := b.count; missing > 0; {
		n, _, err := unix.Recvfrom(b.socket, received, 0)
		if err != nil {
			return nil, err
		}
		for data := received[:n]; len(data) >= unix.SizeofNlMsghdr+4; {
			length := binary.NativeEndian.Uint32(data)
			number := binary.NativeEndian.Uint32(data[8:])
			code := int32(binary.NativeEndian.Uint32(data[unix.SizeofNlMsghdr:])) //nolint:gosec // a negative errno
			if binary.NativeEndian.Uint16(data[4:]) == unix.NLMSG_ERROR && number < b.count {
				if code != 0 {
					answers[number] = unix.Errno(-code)
				}
				missing--
			}
			data = data[min(len(data), int(length+3)&^3):]
		}
	}
	return answers, nil
}
