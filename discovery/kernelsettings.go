package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes from linux/netfilter/nf_tables.h that are missing from golang.org/x/sys/unix.
const (
	nftaHookDevs          = 4
	nftaFlowtableName     = 2
	nftaFlowtableHook     = 3
	nftaFlowtableHookDevs = 3
	nftaDeviceName        = 1
	// nftTypeMask removes the flags from the type of an attribute (NLA_TYPE_MASK).
	nftTypeMask = 0x3fff
)

// Settings implements routing.
func (k *kernel) Settings(link netlink.Link) (settings []string, err error) {
	attrs := link.Attrs()
	add := func(format string, args ...any) { settings = append(settings, fmt.Sprintf(format, args...)) }
	proxies, err := k.NeighProxyList(attrs.Index, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("cannot list the proxy neighbors of %s: %w", attrs.Name, err)
	}
	for i := range proxies {
		add("it answers for the neighbor %s", proxies[i].IP)
	}
	// EINVAL: the kernel keeps no such entries for links that are not Ethernet (ndo_dflt_fdb_dump).
	entries, err := k.strict.NeighList(attrs.Index, unix.AF_BRIDGE)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("cannot list the forwarding entries of %s: %w", attrs.Name, err)
	}
	for i := range entries {
		// The kernel itself adds multicast addresses.
		if address := entries[i].HardwareAddr; len(address) > 0 && address[0]&1 == 0 {
			add("it has the forwarding entry %s", address)
		}
	}
	hops, err := k.nexthops(attrs.Index)
	if err != nil {
		return nil, fmt.Errorf("cannot list the next hops of %s: %w", attrs.Name, err)
	}
	for _, id := range hops {
		add("the next hop %d uses it", id)
	}
	hooks, err := k.netfilterHooks(attrs.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot list the netfilter hooks of %s: %w", attrs.Name, err)
	}
	return append(settings, hooks...), nil
}

// nexthops returns the IDs of the next hop objects that use a link. With net.ipv4.nexthop_compat_mode=0, the routes
// that use them do not contain the link. Kernels before 5.3 do not have such objects.
func (k *kernel) nexthops(link int) (ids []uint32, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &k.links}
	filter := nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(link))) //nolint:gosec // an index
	request.AddRawData(append(make([]byte, unix.SizeofNhmsg), filter.Serialize()...))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEXTHOP)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	for _, message := range messages {
		for kind, value := range attributes(message[unix.SizeofNhmsg:]) {
			if kind == unix.NHA_ID && len(value) == 4 {
				ids = append(ids, binary.NativeEndian.Uint32(value))
			}
		}
	}
	return ids, err
}

// netfilterHooks returns the chains and flowtables of nftables that are attached to a link by name.
func (k *kernel) netfilterHooks(link string) ([]string, error) {
	chains, err := k.netfilter(unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, unix.NFPROTO_NETDEV)
	if err != nil {
		return nil, err
	}
	// The kernel filters by family, but flowtables exist in three of them.
	tables, err := k.netfilter(unix.NFT_MSG_GETFLOWTABLE, unix.NFT_MSG_NEWFLOWTABLE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, err
	}
	return hooksOf(link, chains, tables), nil
}

func hooksOf(link string, chains, tables [][]byte) (hooks []string) {
	for _, chain := range chains {
		hook := nested(chain, unix.NFTA_CHAIN_HOOK)
		if text(nested(hook, unix.NFTA_HOOK_DEV)) == link || listsDevice(nested(hook, nftaHookDevs), link) {
			hooks = append(hooks, fmt.Sprintf("the nftables chain %s is attached to it",
				text(nested(chain, unix.NFTA_CHAIN_NAME))))
		}
	}
	for _, table := range tables {
		if listsDevice(nested(nested(table, nftaFlowtableHook), nftaFlowtableHookDevs), link) {
			hooks = append(hooks, fmt.Sprintf("the nftables flowtable %s contains it",
				text(nested(table, nftaFlowtableName))))
		}
	}
	return hooks
}

// netfilter returns the attributes of all nftables objects of one type. There are none if the kernel has no nftables
// (EINVAL) or no netfilter at all.
func (k *kernel) netfilter(get, reply int, family uint8) (objects [][]byte, err error) {
	if k.filters == nil {
		return nil, nil
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	request := nl.NewNetlinkRequest(subsystem|get, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: k.filters}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family})
	messages, err := request.Execute(unix.NETLINK_NETFILTER, uint16(subsystem|reply))
	if errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	for _, message := range messages {
		objects = append(objects, message[nl.SizeofNfgenmsg:])
	}
	return objects, err
}

// nested returns the value of the first attribute with a type, or nil if there is none.
func nested(data []byte, kind uint16) []byte {
	for found, value := range attributes(data) {
		if found&nftTypeMask == kind {
			return value
		}
	}
	return nil
}

func listsDevice(list []byte, link string) bool {
	for kind, value := range attributes(list) {
		if kind&nftTypeMask == nftaDeviceName && text(value) == link {
			return true
		}
	}
	return false
}

// text returns the string in an attribute, without the final zero.
func text(value []byte) string { return strings.TrimRight(string(value), "\x00") }
