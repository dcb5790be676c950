package discovery

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// kindOpenVSwitch is the link kind of Open vSwitch datapaths, bridges and internal ports
// (net/openvswitch/vport-internal_dev.c in the kernel).
const kindOpenVSwitch = "openvswitch"

// link is a device with its properties from netlink and the properties from sysfs that identify its hardware.
type link struct {
	Device
	index int

	// dir is the link's directory in sysfs.
	dir string
	// hardware is true if the link belongs to a hardware device.
	hardware bool
	// function is the PCI function that the link belongs to.
	function PCIAddress
	// port determines the order of a function's links: uplinks come before representors, and ports are otherwise sorted
	// by number.
	port port
	// rdmaPort is the port of the RDMA device that has this link, if it is not the first port.
	rdmaPort *RDMAPort
}

// port distinguishes the links of a PCI function.
type port struct {
	representor bool
	number      int
}

// readLinks lists the links in the namespace, except for the loopback link.
func readLinks(source LinkLister, nodeAddresses []netip.Addr) ([]link, []Problem, error) {
	list, err := source.LinkList()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list links: %w", err)
	}
	byIndex, err := indexed(list)
	if err != nil {
		return nil, nil, err
	}
	infrastructure, err := infrastructureIndexes(source, nodeAddresses, list)
	if err != nil {
		return nil, nil, err
	}
	links := make([]link, 0, len(list))
	var problems []Problem
	for _, l := range list {
		attrs := l.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 {
			continue
		}
		if !isLinkName(attrs.Name) {
			problems = append(problems, Problem{Message: fmt.Sprintf(
				"ignoring link %d: %s is not a valid link name", attrs.Index, excerpt(attrs.Name))})
			continue
		}
		device := deviceOf(l, byIndex)
		device.DefaultRoute = infrastructure[attrs.Index]
		links = append(links, link{Device: device, index: attrs.Index})
	}
	return links, problems, nil
}

// indexed returns the links by index, or an error if a link or name occurs twice. Such a dump is inconsistent: the
// kernel does not detect every change that happens between two parts of a dump.
func indexed(list []netlink.Link) (map[int]netlink.Link, error) {
	byIndex := make(map[int]netlink.Link, len(list))
	names := make(map[string]bool, len(list))
	for _, l := range list {
		attrs := l.Attrs()
		if byIndex[attrs.Index] != nil || names[attrs.Name] {
			return nil, fmt.Errorf("%w: link %d (%s) was listed twice", errChanged, attrs.Index, excerpt(attrs.Name))
		}
		byIndex[attrs.Index], names[attrs.Name] = l, true
	}
	return byIndex, nil
}

// deviceOf converts a netlink link to a device.
func deviceOf(l netlink.Link, byIndex map[int]netlink.Link) Device {
	attrs := l.Attrs()
	d := Device{
		Name:      IfName(attrs.Name),
		Interface: IfName(attrs.Name),
		AltNames:  slices.Sorted(slices.Values(attrs.AltNames)),
		Kind:      l.Type(),
		MAC:       attrs.HardwareAddr.String(),
		MTU:       attrs.MTU,
		LinkType:  linkType(attrs),
		OperState: attrs.OperState.String(),
		AdminUp:   attrs.Flags&net.FlagUp != 0,
		Carrier:   attrs.RawFlags&unix.IFF_LOWER_UP != 0,
		NUMANode:  None,
		VFIndex:   None,
		VLANID:    None,
	}
	if master, ok := byIndex[attrs.MasterIndex]; ok {
		d.Master, d.MasterKind = IfName(master.Attrs().Name), master.Type()
	}
	if parent := linkkind.Lower(l); parent != 0 {
		if p, ok := byIndex[parent]; ok {
			d.Parent = IfName(p.Attrs().Name)
		}
	}
	switch l := l.(type) {
	case *netlink.Bridge:
		d.BridgeName, d.BridgeType = d.Name, "linux"
		d.VLANFiltering = l.VlanFiltering != nil && *l.VlanFiltering
	case *netlink.Vlan:
		d.VLANID = l.VlanId
	}
	if d.Kind == kindOpenVSwitch && !isDatapath(attrs, byIndex) {
		d.BridgeName, d.BridgeType = d.Name, "ovs"
	}
	return d
}

// linkType returns a link's hardware type, or "" for Ethernet and for links from a recording that omits the type.
func linkType(attrs *netlink.LinkAttrs) string {
	if attrs.EncapType == "ether" {
		return ""
	}
	return attrs.EncapType
}

// isImmovable reports whether the kernel refuses to move a link to another network namespace. If the kernel does not
// report this (before Linux 6.15), it is inferred from the link's kind: netns_immutable, formerly NETIF_F_NETNS_LOCAL,
// is set in br_device.c, bond_main.c, team_core.c, vrf.c and vport-internal_dev.c, and by drivers for representors.
func isImmovable(source Hardware, l *link) bool {
	if source != nil {
		if immovable, known := source.Immovable(l.index); known {
			return immovable
		}
	}
	switch l.Kind {
	case "bridge", "bond", "team", "vrf", kindOpenVSwitch:
		return true
	}
	return l.Representor
}

// isDatapath reports whether an Open vSwitch link is a datapath. The kernel makes the datapath's link the master of all
// of its ports except internal ports (ovs_netdev_link in net/openvswitch/vport-netdev.c). ovs-vswitchd uses a single
// datapath, which is named ovs-system; ovs-dpctl can create others.
func isDatapath(attrs *netlink.LinkAttrs, byIndex map[int]netlink.Link) bool {
	if attrs.Name == "ovs-system" {
		return true
	}
	for _, l := range byIndex {
		if l.Attrs().MasterIndex == attrs.Index {
			return true
		}
	}
	return false
}

// infrastructureIndexes returns the indexes of the links that carry a default route or an address of the node, and of
// all links below them.
func infrastructureIndexes(source LinkLister, nodeAddresses []netip.Addr, list []netlink.Link) (map[int]bool, error) {
	routes, err := defaultRoutes(source)
	if err != nil {
		return nil, err
	}
	addresses, err := linksWith(source, nodeAddresses)
	if err != nil {
		return nil, err
	}
	return withLower(append(routes, addresses...), list), nil
}

// defaultRoutes returns the indexes of the links used by default routes in the main table.
func defaultRoutes(source LinkLister) ([]int, error) {
	var indexes []int
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := source.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("cannot list routes: %w", err)
		}
		for _, r := range routes {
			indexes = append(indexes, defaultRouteLinks(r)...)
		}
	}
	return indexes, nil
}

// linksWith returns the indexes of the links that have any of the addresses.
func linksWith(source LinkLister, nodeAddresses []netip.Addr) ([]int, error) {
	if len(nodeAddresses) == 0 {
		return nil, nil
	}
	addresses, err := source.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("cannot list addresses: %w", err)
	}
	var indexes []int
	for _, a := range addresses {
		if isAddressOf(a, nodeAddresses) {
			indexes = append(indexes, a.LinkIndex)
		}
	}
	return indexes, nil
}

func isAddressOf(a netlink.Addr, node []netip.Addr) bool {
	if a.IPNet == nil {
		return false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	return ok && slices.Contains(node, ip.Unmap())
}

// withLower returns the given links and all links below them: bridge ports, bond members, parents. The ports of any
// Open vSwitch bridge are treated as being below all Open vSwitch bridges: in the kernel, all bridges share one
// datapath, which is the master of all ports.
//
// For example, if a default route uses br0, whose port bond0 has the members eth0 and eth1, all four links carry the
// node's traffic. A VLAN refers to its parent by index (see linkkind.Lower), whereas members and ports refer to their
// master.
func withLower(todo []int, list []netlink.Link) map[int]bool {
	lower := map[int][]int{}
	ovsPorts := portsOfOpenVSwitch(list)
	for _, l := range list {
		attrs := l.Attrs()
		if attrs.MasterIndex != 0 {
			lower[attrs.MasterIndex] = append(lower[attrs.MasterIndex], attrs.Index)
		}
		if parent := linkkind.Lower(l); parent != 0 {
			lower[attrs.Index] = append(lower[attrs.Index], parent)
		}
		if l.Type() == kindOpenVSwitch {
			lower[attrs.Index] = append(lower[attrs.Index], ovsPorts...)
		}
	}
	found := map[int]bool{}
	for len(todo) > 0 {
		index := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if found[index] {
			continue
		}
		found[index] = true
		todo = append(todo, lower[index]...)
	}
	return found
}

// portsOfOpenVSwitch returns the indexes of the links whose master is an Open vSwitch datapath.
func portsOfOpenVSwitch(list []netlink.Link) []int {
	datapaths := map[int]bool{}
	for _, l := range list {
		if l.Type() == kindOpenVSwitch {
			datapaths[l.Attrs().Index] = true
		}
	}
	var ports []int
	for _, l := range list {
		if datapaths[l.Attrs().MasterIndex] {
			ports = append(ports, l.Attrs().Index)
		}
	}
	return ports
}

// defaultRouteLinks returns the indexes of the links used by a route if it is a default route, or nil otherwise.
func defaultRouteLinks(r netlink.Route) []int {
	if r.Dst != nil {
		if ones, _ := r.Dst.Mask.Size(); ones != 0 || !r.Dst.IP.IsUnspecified() {
			return nil
		}
	}
	if r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_UNSPEC {
		return nil
	}
	var indexes []int
	if r.LinkIndex != 0 {
		indexes = append(indexes, r.LinkIndex)
	}
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	return indexes
}

// uplinks maps every PCI function that has links to the index of the link that represents the function. A function has
// more than one link if it has several ports, or if its virtual functions have representors.
//
// For example, a ConnectX function in switchdev mode has the link ens1f0np0 (phys_port_name p0) and, for each virtual
// function, a representor such as ens1f0npf0vf0 (pf0vf0). The first link represents the function.
func uplinks(links []link) map[PCIAddress]int {
	sorted := slices.Clone(links)
	slices.SortFunc(sorted, func(a, b link) int {
		return cmp.Or(a.port.compare(b.port), cmp.Compare(a.index, b.index))
	})
	indexes := map[PCIAddress]int{}
	for _, l := range sorted {
		if _, taken := indexes[l.function]; l.function != "" && !taken && !l.port.representor {
			indexes[l.function] = l.index
		}
	}
	return indexes
}

// compare sorts uplinks before representors, then by port number.
func (p port) compare(q port) int {
	if p.representor != q.representor {
		if p.representor {
			return 1
		}
		return -1
	}
	return cmp.Compare(p.number, q.number)
}

// sortedByAddress sorts devices by PCI address in place and returns them.
func sortedByAddress(devices []Device) []Device {
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.PCIAddress, b.PCIAddress) })
	return devices
}
