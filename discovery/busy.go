package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// Use describes how the node itself is using a link at a given point in time.
type Use struct {
	// Reason is a phrase such as "it is a port of the bridge br0", or empty if the node does not use the link.
	Reason string
	// Restorable is true if the use only consists of addresses, routes and rules, which can be restored when the link
	// returns. It is false for a link that carries a default route or an address of the Node object.
	Restorable bool
}

// routing adds the queries that Busy needs beyond those in LinkLister. The sources returned by Host implement it.
type routing interface {
	// LinksAround returns the named links, their masters, and the links on top of them.
	LinksAround(names []IfName) ([]netlink.Link, error)
	// Routes returns the routes in all tables that use the link with the given index, or all routes if it is 0.
	Routes(link int) ([]netlink.Route, error)
	RuleList(family int) ([]netlink.Rule, error)
	NeighList(linkIndex, family int) ([]netlink.Neigh, error)
	QdiscList(netlink.Link) ([]netlink.Qdisc, error)
	// Settings returns other settings that the kernel discards when a link moves to another namespace, as phrases such
	// as "the next hop 7 uses it".
	Settings(netlink.Link) ([]string, error)
}

// Busy reports how the node currently uses links, based on a single scan. A busy link must not be taken from the host.
// A link that does not exist is not busy. A physical function is also busy if one of its virtual functions on the host
// is.
//
// Busy is called immediately before a device is taken, and only for a few links. Unlike Read, it can therefore afford
// to read the rules and the routes in all tables, but it does not query the hardware.
func Busy(ctx context.Context, source Sources, names ...IfName) (map[IfName]Use, error) {
	return attempt(ctx, func() (map[IfName]Use, error) { return readUses(source, names) })
}

// readUses determines how the node uses the named links. Names that match no link are omitted.
//
// A pod waits for the result, and a node may have thousands of links and routes. Therefore, readUses only reads data
// about the given links and the functions that move with them. It does not need to examine other links: the use of
// another link matters only if that link is on top of a given link, and having a link on top already counts as a use.
func readUses(source Sources, names []IfName) (map[IfName]Use, error) {
	functions := make(map[IfName][]IfName, len(names))
	around := slices.Clone(names)
	for _, name := range names {
		found, err := linksOfFunctions(source.Sys, name)
		if errors.Is(err, fs.ErrNotExist) { // the link may be in a pod
			continue
		}
		if err != nil {
			return nil, err
		}
		functions[name], around = found, append(around, found...)
	}
	node, err := readNodeLinks(source, around)
	if err != nil {
		return nil, err
	}
	uses := make(map[IfName]Use, len(names))
	for _, name := range names {
		link := node.named(name)
		moving, inSysfs := functions[name]
		if (link != nil) != inSysfs {
			return nil, fmt.Errorf("%w: sysfs and netlink disagree about link %s", errChanged, name)
		}
		if link == nil {
			continue
		}
		if uses[name], err = node.useWithFunctions(link, moving); err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// nodeLinks holds some of the node's links, and the configuration that may refer to them.
type nodeLinks struct {
	Sources
	list      []netlink.Link
	addresses []netlink.Addr
	rules     []netlink.Rule
	// routes are all routes of the node if they are not read separately for each link. Recordings only contain routes
	// in the main table.
	routes   []netlink.Route
	separate bool
}

// mostSeparate is the maximum number of links whose routes the kernel filters. For each of these links, the kernel
// visits all routes, so for more links, it is faster to read all routes once.
const mostSeparate = 4

// readNodeLinks reads the named links and the links around them.
func readNodeLinks(source Sources, names []IfName) (*nodeLinks, error) {
	tables, isKernel := source.Links.(routing)
	node := &nodeLinks{Sources: source, separate: isKernel && len(names) <= mostSeparate}
	var err error
	if isKernel {
		node.list, err = tables.LinksAround(names)
	} else {
		node.list, err = source.Links.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list links: %w", err)
	}
	if _, err := indexed(node.list); err != nil {
		return nil, err
	}
	if node.addresses, err = source.Links.AddrList(nil, unix.AF_UNSPEC); err != nil {
		return nil, fmt.Errorf("cannot list addresses: %w", err)
	}
	if isKernel {
		if node.rules, err = tables.RuleList(unix.AF_UNSPEC); err != nil {
			return nil, fmt.Errorf("cannot list rules: %w", err)
		}
	}
	switch {
	case node.separate:
	case isKernel:
		node.routes, err = tables.Routes(0)
	default:
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			routes, listErr := source.Links.RouteList(nil, family)
			node.routes, err = append(node.routes, routes...), errors.Join(err, listErr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list routes: %w", err)
	}
	return node, nil
}

// named returns the link with the given name, or nil if there is none.
func (n *nodeLinks) named(name IfName) netlink.Link {
	for _, l := range n.list {
		if IfName(l.Attrs().Name) == name {
			return l
		}
	}
	return nil
}

// useWithFunctions returns the use of a link or, if it is a physical function, of one of its virtual or scalable
// functions, which move together with it. If the link itself has a use that cannot be restored, that use is returned
// and the functions are not checked.
func (n *nodeLinks) useWithFunctions(l netlink.Link, functions []IfName) (Use, error) {
	use, err := n.use(l, true)
	if err != nil || use.Reason != "" && !use.Restorable {
		return use, err
	}
	for _, function := range functions {
		link := n.named(function)
		if link == nil {
			return Use{}, fmt.Errorf("%w: there is no link %s", errChanged, function)
		}
		ofFunction, err := n.use(link, false)
		if err != nil {
			return Use{}, err
		}
		if ofFunction.Reason != "" {
			return Use{Reason: fmt.Sprintf("the node uses its function %s: %s", function, ofFunction.Reason)}, nil
		}
	}
	return use, nil
}

// use returns how the node uses a single link. Upper devices and the node's own traffic take precedence over uses that
// can be restored. moves is true if the link itself is moved to another namespace, which discards more of its settings.
func (n *nodeLinks) use(l netlink.Link, moves bool) (Use, error) {
	attrs := l.Attrs()
	for _, other := range n.list {
		switch name := other.Attrs().Name; {
		case attrs.MasterIndex != 0 && other.Attrs().Index == attrs.MasterIndex:
			return Use{Reason: fmt.Sprintf("it is a port of the %s %s", other.Type(), name)}, nil
		case linkkind.Lower(other) == attrs.Index:
			return Use{Reason: fmt.Sprintf("the %s %s is on top of it", other.Type(), name)}, nil
		}
	}
	if attrs.MasterIndex != 0 {
		return Use{}, fmt.Errorf("%w: the list has no link %d", errChanged, attrs.MasterIndex)
	}
	if upper, err := upperLink(n.Sys, IfName(attrs.Name)); err != nil || upper != "" {
		return Use{Reason: fmt.Sprintf("the link %s is on top of it", upper)}, err
	}
	var use Use
	add := func(restorable bool, format string, args ...any) {
		if use.Reason == "" || use.Restorable && !restorable {
			use = Use{Reason: fmt.Sprintf(format, args...), Restorable: restorable}
		}
	}
	for _, a := range n.addresses {
		switch {
		case a.LinkIndex != attrs.Index || a.IPNet == nil:
		case isAddressOf(a, n.NodeAddresses):
			add(false, "it carries the address %s of the node", a.IP)
		case !a.IP.IsLinkLocalUnicast():
			add(true, "it has the address %s", a.IPNet)
		}
	}
	if err := n.routed(attrs.Index, add); err != nil {
		return Use{}, err
	}
	for i := range n.rules {
		if rule := &n.rules[i]; rule.IifName == attrs.Name || rule.OifName == attrs.Name {
			add(true, "the routing rule with priority %d refers to it", rule.Priority)
		}
	}
	if tables, ok := n.Links.(routing); ok && moves {
		if err := filtered(tables, l, add); err != nil {
			return Use{}, err
		}
	}
	return use, nil
}

// upperLink returns the name of a link on top of a link, or "" if there is none. Netlink reports such a relation in a
// form that depends on the kind of the upper link, for example as a setting of HSR, but sysfs lists all of them in the
// same way (netdev_upper_dev_link).
func upperLink(fsys fs.ReadLinkFS, name IfName) (string, error) {
	entry := path.Join("class/net", string(name))
	target, err := fsys.ReadLink(entry)
	if err != nil {
		return "", fmt.Errorf("%w: sysfs has no %s: %w", errChanged, entry, err)
	}
	entries, err := fs.ReadDir(fsys, path.Join(path.Dir(entry), target))
	if err != nil {
		return "", fmt.Errorf("%w: cannot list %s in sysfs: %w", errChanged, entry, err)
	}
	for _, entry := range entries {
		if upper, ok := strings.CutPrefix(entry.Name(), "upper_"); ok {
			return upper, nil
		}
	}
	return "", nil
}

// adder records a use, unless a use that is at least as severe is already known.
type adder func(restorable bool, format string, args ...any)

// routed adds a use for each route through a link.
func (n *nodeLinks) routed(index int, add adder) error {
	routes := n.routes
	if tables, ok := n.Links.(routing); ok && n.separate {
		var err error
		if routes, err = tables.Routes(index); err != nil {
			return fmt.Errorf("cannot list routes: %w", err)
		}
	}
	for i := range routes {
		r := &routes[i]
		isHop := slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index })
		switch {
		case isMain(r) && slices.Contains(defaultRouteLinks(*r), index):
			add(false, "it carries a default route of the node")
		case isOwnRoute(r):
		case isHop:
			add(false, "it is a path of the multipath route to %s in table %d", destination(r), r.Table)
		case r.LinkIndex == index:
			add(!isSpecialRoute(r), "it has a route to %s in table %d", destination(r), r.Table)
		}
	}
	return nil
}

// filtered adds uses for queueing disciplines, filters, permanent neighbors and other settings that the kernel discards
// when a link moves to another namespace, and for the link's XDP program. Disciplines that the kernel attaches by
// default have no handle (attach_default_qdiscs in net/sched/sch_generic.c).
func filtered(table routing, l netlink.Link, add adder) error {
	attrs := l.Attrs()
	neighbours, err := table.NeighList(attrs.Index, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("cannot list the neighbors of %s: %w", attrs.Name, err)
	}
	for i := range neighbours {
		if n := &neighbours[i]; n.State&unix.NUD_PERMANENT != 0 && n.IP != nil {
			add(true, "it has the permanent neighbor %s", n.IP)
		}
	}
	disciplines, err := table.QdiscList(l)
	if err != nil {
		return fmt.Errorf("cannot list the queueing disciplines of %s: %w", attrs.Name, err)
	}
	for _, discipline := range disciplines {
		if handle := discipline.Attrs().Handle; handle != 0 {
			add(false, "it has the queueing discipline %s %s", discipline.Type(), netlink.HandleStr(handle))
		}
	}
	settings, err := table.Settings(l)
	if err != nil {
		return err
	}
	for _, setting := range settings {
		add(false, "%s", setting)
	}
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		add(false, "it has the XDP program %d", attrs.Xdp.ProgId)
	}
	return nil
}

// isMain reports whether a route is in the main table; recordings omit the table.
func isMain(r *netlink.Route) bool {
	return r.Table == unix.RT_TABLE_MAIN || r.Table == unix.RT_TABLE_UNSPEC
}

// isOwnRoute reports whether the kernel created a route on its own because the link is up.
func isOwnRoute(r *netlink.Route) bool {
	return r.Protocol == unix.RTPROT_KERNEL && r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast())
}

// isSpecialRoute reports whether a route has encapsulation, several next hops, or anything else besides a destination,
// a gateway and numeric properties.
func isSpecialRoute(r *netlink.Route) bool {
	return r.Encap != nil || r.NewDst != nil || r.Via != nil || r.MPLSDst != nil || len(r.MultiPath) > 0
}

func destination(r *netlink.Route) string {
	if r.Dst == nil {
		return "everything"
	}
	return r.Dst.String()
}

// linksOfFunctions returns the links in the host's namespace that belong to virtual and scalable functions of a link's
// PCI function.
func linksOfFunctions(fsys fs.ReadLinkFS, name IfName) ([]IfName, error) {
	sys := &sysfs{fsys: fsys}
	entry := path.Join("class/net", string(name))
	target, err := fsys.ReadLink(entry)
	if err != nil {
		return nil, fmt.Errorf("%w: sysfs has no %s: %w", errChanged, entry, err)
	}
	dir := place{sys, path.Join(path.Dir(entry), target), string(name)}
	below, hardware := dir.link("device")
	if !hardware {
		return nil, nil
	}
	address := pciFunction(path.Join(dir.dir, below))
	pf, isFunction := sys.functionPlace(string(address))
	if !isFunction {
		return nil, nil
	}
	functions, err := pf.vfIndexes()
	if err != nil {
		return nil, err
	}
	var names []IfName
	for function := range functions {
		vf, ok := sys.functionPlace(string(function))
		if !ok {
			continue
		}
		links, _ := vf.list("net")
		for _, link := range links {
			names = append(names, IfName(link))
		}
	}
	entries, err := fs.ReadDir(fsys, pf.dir)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot list scalable functions: %w", errChanged, err)
	}
	for _, entry := range entries {
		if isScalableFunction(entry.Name()) {
			links, _ := place{sys, pf.path(entry.Name()), string(address)}.list("net")
			for _, link := range links {
				names = append(names, IfName(link))
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
