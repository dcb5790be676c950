package discovery

import (
	"errors"
	"fmt"

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

// kernel provides the netlink sockets of one network namespace.
type kernel struct {
	*netlink.Handle
	links nl.SocketHandle
	// immovable contains, by index, whether the links in the last list can be moved, if the kernel reports it.
	immovable map[int]bool
	// netns is the namespace itself, for sockets that are opened later.
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
	namespace, err := netns.Get()
	if err != nil {
		handle.Close()
		socket.Close()
		return nil, fmt.Errorf("cannot open the network namespace: %w", err)
	}
	return &kernel{Handle: handle, links: nl.SocketHandle{Socket: socket}, netns: namespace}, nil
}

// Close closes the sockets and the namespace.
func (k *kernel) Close() {
	k.Handle.Close()
	k.links.Close()
	_ = k.netns.Close() // nothing was written
}

// LinkList implements LinkLister. Unlike the Handle method, it does not request virtual functions: some drivers query
// their firmware for the statistics, one function at a time, and the response may be too large; see maxListedVFs.
func (k *kernel) LinkList() ([]netlink.Link, error) {
	messages, dumpErr := k.get(unix.NLM_F_DUMP, 0, filterSkipStats)
	if dumpErr != nil && !errors.Is(dumpErr, netlink.ErrDumpInterrupted) {
		return nil, dumpErr
	}
	k.immovable = make(map[int]bool, len(messages))
	links := make([]netlink.Link, 0, len(messages))
	for _, message := range messages {
		link, err := netlink.LinkDeserialize(nil, message)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the kernel's list of links: %w", err)
		}
		links = append(links, link)
		attributes, err := nl.ParseRouteAttr(message[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("cannot parse the kernel's list of links: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type == attributeImmovable && len(a.Value) > 0 {
				k.immovable[link.Attrs().Index] = a.Value[0] != 0
			}
		}
	}
	return links, dumpErr
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

// settingsIn returns the settings of virtual functions in a message about a link.
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
