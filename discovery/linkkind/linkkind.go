package linkkind

// IsPair reports whether links of a kind (IFLA_INFO_KIND) are made in pairs. Such a link names its peer where others
// name the link that they stand on (IFLA_LINK): the ndo_get_iflink of drivers/net/veth.c, netkit.c and can/vxcan.c.
func IsPair(kind string) bool {
	switch kind {
	case "veth", "netkit", "vxcan":
		return true
	}
	return false
}
