package cnichain

// Link is a network interface as netlink shows it in one namespace.
type Link struct {
	Name     string   `json:"name"`
	AltNames []string `json:"altNames,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	Index    int      `json:"index"`
	MAC      string   `json:"mac,omitempty"`
	MTU      int      `json:"mtu,omitempty"`
	// Kind is the kernel's kind of link: veth, macvlan...; "device" for hardware.
	Kind string `json:"kind,omitempty"`
	// Parent is the index of the lower device, or of a veth's other end (IFLA_LINK); 0 without one. ParentElsewhere is
	// true if it is in another namespace (IFLA_LINK_NETNSID).
	Parent          int  `json:"parent,omitempty"`
	ParentElsewhere bool `json:"parentElsewhere,omitempty"`
	// ParentDev and PermMAC are as in [Baseline]: the bus device and the permanent address of hardware.
	ParentDev string `json:"parentDev,omitempty"`
	PermMAC   string `json:"permMAC,omitempty"`
	// VLANID and VLANProtocol are a VLAN's.
	VLANID       int    `json:"vlanID,omitempty"`
	VLANProtocol string `json:"vlanProtocol,omitempty"`
}

// Same reports whether a link is the one that was seen before: an application can make another of the same name, and of
// the same index once that is free, but not of the same kind on the same parent.
func (l *Link) Same(seen *Link) bool {
	if l.Index != seen.Index {
		return false
	}
	return seen.Kind == "" || l.Kind == seen.Kind && l.Parent == seen.Parent &&
		l.ParentElsewhere == seen.ParentElsewhere
}

// KindVLAN is the kind of a link that has one VLAN of another.
const KindVLAN = "vlan"
