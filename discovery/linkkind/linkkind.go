package linkkind

// IsPair reports whether links of this kind (IFLA_INFO_KIND) are created in pairs. For these links, IFLA_LINK is the
// peer; for other links, it is the lower link. See ndo_get_iflink in drivers/net/veth.c, netkit.c and can/vxcan.c.
func IsPair(kind string) bool {
	switch kind {
	case "veth", "netkit", "vxcan":
		return true
	}
	return false
}
