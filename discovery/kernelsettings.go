package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	bpf "github.com/cilium/ebpf/link"
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
)

// Settings implements routing.
func (k *kernel) Settings(l netlink.Link) (settings []string, err error) {
	attrs := l.Attrs()
	add := func(format string, args ...any) { settings = append(settings, fmt.Sprintf(format, args...)) }
	proxies, err := k.proxies(attrs.Index)
	if err != nil {
		return nil, fmt.Errorf("cannot list the proxy neighbors of %s: %w", attrs.Name, err)
	}
	for _, address := range proxies {
		add("it answers for the neighbor %s", address)
	}
	entries, err := k.addresses(attrs, l.Type())
	if err != nil {
		return nil, fmt.Errorf("cannot list the forwarding entries of %s: %w", attrs.Name, err)
	}
	for _, address := range entries {
		add("it has the forwarding entry %s", address)
	}
	hops, err := k.nexthops(attrs.Index)
	if err != nil {
		return nil, fmt.Errorf("cannot list the next hops of %s: %w", attrs.Name, err)
	}
	for _, id := range hops {
		add("the next hop %d uses it", id)
	}
	hooks, err := k.netfilterHooks(append([]string{attrs.Name}, attrs.AltNames...))
	if err != nil {
		return nil, fmt.Errorf("cannot list the netfilter hooks of %s: %w", attrs.Name, err)
	}
	settings = append(settings, hooks...)
	programs, err := tcxPrograms(attrs.Index)
	if err != nil {
		return nil, fmt.Errorf("cannot list the tcx programs of %s: %w", attrs.Name, err)
	}
	for _, id := range programs {
		add("it has the tcx program %d", id)
	}
	return settings, nil
}

// tcxPrograms returns the IDs of the BPF programs that are attached to a link without a queueing discipline. They would
// move with the link and filter the pod's traffic. Kernels before 6.6 have no such programs.
func tcxPrograms(index int) (ids []ebpf.ProgramID, err error) {
	for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		result, err := bpf.QueryPrograms(bpf.QueryOptions{Target: index, Attach: hook})
		if errors.Is(err, ebpf.ErrNotSupported) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, program := range result.Programs {
			ids = append(ids, program.ID)
		}
	}
	return ids, nil
}

// proxies returns the addresses that the kernel answers for on a link. The library cannot be used: it compares all
// flags of an entry, and an administrator may have set others.
func (k *kernel) proxies(index int) (addresses []net.IP, err error) {
	entries, err := k.neighbors(&netlink.Ndmsg{Flags: netlink.NTF_PROXY})
	for i := range entries {
		if entries[i].LinkIndex == index {
			addresses = append(addresses, entries[i].IP)
		}
	}
	return addresses, err
}

func (k *kernel) neighbors(header nl.NetlinkRequestData) (entries []*netlink.Neigh, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &k.links}
	request.AddData(header)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	for _, message := range messages {
		entry, parseErr := netlink.NeighDeserialize(message)
		if parseErr != nil {
			return nil, parseErr
		}
		entries = append(entries, entry)
	}
	return entries, err
}

// addresses returns the unicast addresses that an administrator or an upper link in another namespace has added to a
// link (ndo_dflt_fdb_dump). The entries of bridges and VXLANs are in their own tables, which move with the link. The
// kernel itself adds multicast addresses.
func (k *kernel) addresses(attrs *netlink.LinkAttrs, kind string) (addresses []net.HardwareAddr, err error) {
	if attrs.EncapType != "ether" || kind == "vxlan" { // other links have no such entries
		return nil, nil
	}
	header := nl.NewIfInfomsg(unix.AF_BRIDGE) // the kernel filters by this header's index (valid_fdb_dump_legacy)
	header.Index = int32(attrs.Index)         //nolint:gosec // an index
	entries, err := k.neighbors(header)
	for _, entry := range entries {
		isOwn := entry.Flags&netlink.NTF_SELF != 0 && entry.State&netlink.NUD_PERMANENT != 0
		if isOwn && entry.LinkIndex == attrs.Index && len(entry.HardwareAddr) > 0 && entry.HardwareAddr[0]&1 == 0 {
			addresses = append(addresses, entry.HardwareAddr)
		}
	}
	return addresses, err
}

// nexthops returns the IDs of the next hop objects that use a link. With net.ipv4.nexthop_compat_mode=0, the routes
// that use them do not contain the link. Kernels before 5.3 do not have such objects.
//
// FRR before 10.2 makes objects without a gateway for the kernel's own routes, such as the link-local one of any link
// that is up, and makes them again when the link returns. They are omitted.
func (k *kernel) nexthops(index int) (ids []uint32, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &k.links}
	filter := nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(index))) //nolint:gosec // an index
	request.AddRawData(append(make([]byte, unix.SizeofNhmsg), filter.Serialize()...))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEXTHOP)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	for _, message := range messages {
		const protocol = 2 // the offset of nh_protocol in struct nhmsg
		object := message[unix.SizeofNhmsg:]
		isImplied := message[protocol] == unix.RTPROT_ZEBRA && nested(object, unix.NHA_GATEWAY) == nil
		if id := nested(object, unix.NHA_ID); len(id) == 4 && !isImplied {
			ids = append(ids, binary.NativeEndian.Uint32(id))
		}
	}
	return ids, err
}

// netfilterHooks returns the chains and flowtables of nftables that are attached to a link by one of its names. Names
// with a wildcard are ignored: kernels that have them attach the hooks again when the link returns.
func (k *kernel) netfilterHooks(names []string) ([]string, error) {
	var chains [][]byte
	for _, family := range []uint8{unix.NFPROTO_NETDEV, unix.NFPROTO_INET} { // no others have ingress chains
		found, err := k.netfilter(unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, family)
		if errors.Is(err, unix.EINVAL) {
			return nil, nil // the kernel does not support nftables
		}
		if err != nil {
			return nil, err
		}
		chains = append(chains, found...)
	}
	// The kernel filters by family, but flowtables exist in three of them.
	tables, err := k.netfilter(unix.NFT_MSG_GETFLOWTABLE, unix.NFT_MSG_NEWFLOWTABLE, unix.NFPROTO_UNSPEC)
	if err != nil && !errors.Is(err, unix.EINVAL) { // the kernel may not support flowtables
		return nil, err
	}
	return hooksOf(names, chains, tables), nil
}

func hooksOf(names []string, chains, tables [][]byte) (hooks []string) {
	for _, chain := range chains {
		hook := nested(chain, unix.NFTA_CHAIN_HOOK)
		if slices.Contains(names, text(nested(hook, unix.NFTA_HOOK_DEV))) || listsDevice(nested(hook, nftaHookDevs), names) {
			hooks = append(hooks, fmt.Sprintf("the nftables chain %s is attached to it",
				text(nested(chain, unix.NFTA_CHAIN_NAME))))
		}
	}
	for _, table := range tables {
		if listsDevice(nested(nested(table, nftaFlowtableHook), nftaFlowtableHookDevs), names) {
			hooks = append(hooks, fmt.Sprintf("the nftables flowtable %s contains it",
				text(nested(table, nftaFlowtableName))))
		}
	}
	return hooks
}

// netfilter returns the attributes of all nftables objects of one type. The error is EINVAL if the kernel does not
// support the type.
func (k *kernel) netfilter(get, reply int, family uint8) (objects [][]byte, err error) {
	if k.filters == nil {
		return nil, nil
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	request := nl.NewNetlinkRequest(subsystem|get, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: k.filters}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family})
	messages, err := request.Execute(unix.NETLINK_NETFILTER, uint16(subsystem|reply))
	for _, message := range messages {
		objects = append(objects, message[nl.SizeofNfgenmsg:])
	}
	return objects, err
}

// nested returns the value of the first attribute with a type, or nil if there is none.
func nested(data []byte, kind uint16) []byte {
	for found, value := range attributes(data) {
		if found == kind {
			return value
		}
	}
	return nil
}

func listsDevice(list []byte, names []string) bool {
	for kind, value := range attributes(list) {
		if kind == nftaDeviceName && slices.Contains(names, text(value)) {
			return true
		}
	}
	return false
}

// text returns the string in an attribute, without the final zero.
func text(value []byte) string { return strings.TrimRight(string(value), "\x00") }
