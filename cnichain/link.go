package cnichain

// Link is a network interface as reported by netlink in one namespace.
type Link struct {
	Name     string   `json:"name"`
	AltNames []string `json:"altNames,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	Index    int      `json:"index"`
	MAC      string   `json:"mac,omitempty"`
	MTU      int      `json:"mtu,omitempty"`
	// Kind is the link kind in the kernel, such as veth or macvlan, or "device" for hardware.
	Kind string `json:"kind,omitempty"`
	// Parent is the index of the lower device, or of a veth's peer (IFLA_LINK); 0 if there is none. ParentElsewhere is
	// true if the lower device or peer is in another namespace (IFLA_LINK_NETNSID).
	Parent          int  `json:"parent,omitempty"`
	ParentElsewhere bool `json:"parentElsewhere,omitempty"`
	// ParentDev and PermMAC are the hardware's bus device and permanent address, as in [Baseline].
	ParentDev string `json:"parentDev,omitempty"`
	PermMAC   string `json:"permMAC,omitempty"`
	// VLANID and VLANProtocol are set only for VLANs.
	VLANID       int    `json:"vlanID,omitempty"`
	VLANProtocol string `json:"vlanProtocol,omitempty"`
}

// Same reports whether the link is the one previously recorded in seen. An application can create a different link that
// reuses the name, and even the index once it is free, but not one of the same kind on the same parent.
func (l *Link) Same(seen *Link) bool {
	if l.Index != seen.Index {
		return false
	}
	return seen.Kind == "" || l.Kind == seen.Kind && l.Parent == seen.Parent &&
		l.ParentElsewhere == seen.ParentElsewhere
}

// KindVLAN is the kind of a VLAN link.
const KindVLAN = "vlan"
