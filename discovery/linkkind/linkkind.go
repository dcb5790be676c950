package linkkind

import "github.com/vishvananda/netlink"

// IsPair reports whether links of this kind (IFLA_INFO_KIND) are created in pairs. For these links, IFLA_LINK is the
// peer; for other links, it is the lower link. See ndo_get_iflink in drivers/net/veth.c, netkit.c and can/vxcan.c.
func IsPair(kind string) bool {
	switch kind {
	case "veth", "netkit", "vxcan":
		return true
	}
	return false
}

// Lower returns the index of the link that a link is on top of, if it is in the same namespace (IFLA_LINK without
// IFLA_LINK_NETNSID), or 0. For a paired link, the kernel reports the peer as the lower link; Lower returns 0.
func Lower(link netlink.Link) int {
	attrs := link.Attrs()
	if IsPair(link.Type()) || attrs.NetNsID >= 0 || attrs.ParentIndex == attrs.Index {
		return 0
	}
	if vxlan, ok := link.(*netlink.Vxlan); ok { // the kernel reports the lower link only as a setting of the type
		return vxlan.VtepDevIndex
	}
	return attrs.ParentIndex
}
