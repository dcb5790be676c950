package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Flags for link queries: RTEXT_FILTER_VF and RTEXT_FILTER_SKIP_STATS in the kernel's include/uapi/linux/rtnetlink.h.
const (
	filterVF        = 1 << 0
	filterSkipStats = 1 << 3
	// attributeImmovable is IFLA_NETNS_IMMUTABLE in the kernel's include/uapi/linux/if_link.h, since Linux 6.15.
	attributeImmovable = 67
)

// kernel holds the netlink sockets for one network namespace.
type kernel struct {
	*netlink.Handle
	links nl.SocketHandle
	// strict has sockets that make the kernel apply the filters in dump requests (NETLINK_GET_STRICT_CHK, since Linux
	// 4.20). Earlier kernels ignore these filters.
	strict *netlink.Handle
	// filters is nil if the kernel has no netfilter.
	filters *nl.SocketHandle
	// immovable maps the indexes of the links in the last list to whether they are immovable, if the kernel reports it.
	immovable map[int]bool
	// netns is the namespace itself, in which other sockets are opened later.
	netns netns.NsHandle
}

// openKernel opens netlink sockets in the calling thread's network namespace.
func openKernel() (*kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	k := &kernel{Handle: handle, links: nl.SocketHandle{Socket: socket}, netns: netns.None()}
	if k.strict, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		k.Close()
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	_ = k.strict.SetStrictCheck(true) // Routes also filters
	socket, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err == nil {
		k.filters = &nl.SocketHandle{Socket: socket}
	} else if !errors.Is(err, unix.EPROTONOSUPPORT) {
		k.Close()
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	if k.netns, err = netns.Get(); err != nil {
		k.Close()
		return nil, fmt.Errorf("cannot open the network namespace: %w", err)
	}
	return k, nil
}

// Close closes the sockets and the namespace.
func (k *kernel) Close() {
	k.Handle.Close()
	k.links.Close()
	if k.strict != nil {
		k.strict.Close()
	}
	if k.filters != nil {
		k.filters.Close()
	}
	_ = k.netns.Close() // nothing was written
}

// LinkList implements LinkLister. Unlike the same method of netlink.Handle, it does not request virtual functions: to
// provide their statistics, some drivers query the firmware for one function at a time, and the response may be too
// large; see maxListedVFs.
func (k *kernel) LinkList() ([]netlink.Link, error) {
	messages, dumpErr := k.get(unix.NLM_F_DUMP, 0, filterSkipStats)
	if dumpErr != nil && !errors.Is(dumpErr, netlink.ErrDumpInterrupted) {
		return nil, dumpErr
	}
	k.immovable = make(map[int]bool, len(messages))
	links, err := deserialize(messages)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		for kind, value := range attributes(message[unix.SizeofIfInfomsg:]) {
			if kind == attributeImmovable && len(value) > 0 { // the netlink library does not parse it
				k.immovable[indexOf(message)] = value[0] != 0
			}
		}
	}
	return links, dumpErr
}

func deserialize(messages [][]byte) ([]netlink.Link, error) {
	links := make([]netlink.Link, 0, len(messages))
	for _, message := range messages {
		link, err := netlink.LinkDeserialize(nil, message)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the kernel's list of links: %w", err)
		}
		links = append(links, link)
	}
	return links, nil
}

// LinksAround implements routing. It parses only the links that it returns.
func (k *kernel) LinksAround(names []IfName) ([]netlink.Link, error) {
	messages, dumpErr := k.get(unix.NLM_F_DUMP, 0, filterSkipStats)
	if dumpErr != nil {
		return nil, dumpErr
	}
	type relation struct{ index, master, lower int }
	relations := make([]relation, len(messages))
	named, masters := map[int]bool{}, map[int]bool{}
	for i, message := range messages {
		r := relation{index: indexOf(message)}
		isNamed := false
		for kind, value := range attributes(message[unix.SizeofIfInfomsg:]) {
			switch {
			case kind == unix.IFLA_IFNAME:
				isNamed = slices.Contains(names, IfName(unix.ByteSliceToString(value)))
			case kind == unix.IFLA_MASTER && len(value) == 4:
				r.master = int(binary.NativeEndian.Uint32(value))
			case kind == unix.IFLA_LINK && len(value) == 4:
				r.lower = int(binary.NativeEndian.Uint32(value))
			case kind == unix.IFLA_LINKINFO && text(nested(value, unix.IFLA_INFO_KIND)) == "vxlan":
				if lower := nested(nested(value, unix.IFLA_INFO_DATA), nl.IFLA_VXLAN_LINK); len(lower) == 4 {
					r.lower = int(binary.NativeEndian.Uint32(lower))
				}
			}
		}
		if isNamed {
			named[r.index], masters[r.master] = true, true
		}
		relations[i] = r
	}
	var around [][]byte
	for i, r := range relations {
		if named[r.index] || named[r.lower] || masters[r.index] {
			around = append(around, messages[i])
		}
	}
	return deserialize(around)
}

// indexOf returns the index of the link described by a message.
func indexOf(message []byte) int { return int(nl.DeserializeIfInfomsg(message).Index) }

// attributeType removes the flags from the type of a netlink attribute (NLA_TYPE_MASK).
const attributeType = 0x3fff

// attributes iterates over the netlink attributes in a message and yields their types, without flags, and values.
func attributes(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(data))
			if length < unix.SizeofRtAttr || length > len(data) ||
				!yield(binary.NativeEndian.Uint16(data[2:])&attributeType, data[unix.SizeofRtAttr:length]) {
				return
			}
			data = data[min(len(data), (length+3)&^3):]
		}
	}
}

// Routes implements routing. It leaves the filtering to the kernel, since a node may have many routes.
func (k *kernel) Routes(link int) ([]netlink.Route, error) {
	var found []netlink.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		// The mask does not contain RT_FILTER_OIF, because the library would then omit multipath routes.
		routes, err := k.strict.RouteListFiltered(family,
			&netlink.Route{LinkIndex: link, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, unix.ENODEV) { // ENODEV: the link has disappeared
			return nil, err
		}
		found = append(found, routes...)
	}
	return found, nil
}

// Immovable implements Hardware.
func (k *kernel) Immovable(link int) (immovable, known bool) {
	immovable, known = k.immovable[link]
	return immovable, known
}

// VFs implements Hardware.
func (k *kernel) VFs(link int) ([]VFSettings, error) {
	messages, err := k.get(unix.NLM_F_ACK, link, filterVF|filterSkipStats)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("the kernel returned %d links", len(messages))
	}
	return settingsIn(messages[0])
}

// get requests one link, or all links.
func (k *kernel) get(flags, link int, filter uint32) ([][]byte, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &k.links}
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(link)
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filter)))
	return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
}

// settingsIn returns the virtual function settings in a message that describes a link.
func settingsIn(message []byte) ([]VFSettings, error) {
	link, err := netlink.LinkDeserialize(nil, message)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the kernel's answer about them: %w", err)
	}
	var list []VFSettings
	for _, vf := range link.Attrs().Vfs {
		settings := VFSettings{VLAN: vf.Vlan, QoS: vf.Qos, Trust: vf.Trust == 1, SpoofCheck: vf.Spoofchk,
			LinkState: vfLinkState(vf.LinkState), MinTxRate: int(vf.MinTxRate), MaxTxRate: int(vf.MaxTxRate)}
		if len(vf.Mac) > 0 && !isSpecial(vf.Mac) {
			settings.MAC = vf.Mac.String()
		}
		list = append(list, settings)
	}
	return list, nil
}

// vfLinkState returns the name of an IFLA_VF_LINK_STATE value, as in ip(8).
func vfLinkState(state uint32) string {
	switch state {
	case unix.IFLA_VF_LINK_STATE_AUTO:
		return "auto"
	case unix.IFLA_VF_LINK_STATE_ENABLE:
		return "enable"
	case unix.IFLA_VF_LINK_STATE_DISABLE:
		return "disable"
	}
	return ""
}

// EswitchMode implements Hardware. Nearly all machines have no such switch, and some do not have devlink.
func (k *kernel) EswitchMode(function PCIAddress) string {
	device, err := k.DevLinkGetDeviceByName("pci", string(function))
	if err != nil {
		return ""
	}
	if mode := device.Attrs.Eswitch.Mode; mode == EswitchLegacy || mode == EswitchSwitchdev {
		return mode
	}
	return ""
}
