package discovery

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Use describes how the node itself uses a link at a point in time.
type Use struct {
	// Reason is a text such as "it is a port of the bridge br0", or empty if the node does not use the link.
	Reason string
	// Restorable is true if the use only consists of addresses, routes and rules, which can be restored when the link
	// returns. It is false for a link that carries a default route or an address of the Node object.
	Restorable bool
}

// routing contains the queries that Busy needs in addition to LinkLister; *netlink.Handle implements it.
type routing interface {
	RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error)
	RuleList(family int) ([]netlink.Rule, error)
	NeighList(linkIndex, family int) ([]netlink.Neigh, error)
	QdiscList(netlink.Link) ([]netlink.Qdisc, error)
}

// Busy reports how the node currently uses links, based on a single reading. A busy link must not be taken from the
// host. A missing link is not busy. A physical function is also busy if one of its virtual functions on the host is.
//
// Busy is called immediately before a device is taken, and only for a few links. Therefore, unlike Read, it reads the
// rules and the routes in all tables, but no hardware.
func Busy(ctx context.Context, source Sources, names ...IfName) (map[IfName]Use, error) {
	return attempt(ctx, func() (map[IfName]Use, error) { return readUses(source, names) })
}

// readUses reads how the node uses links. It dumps links, addresses and routes only once for all names. Names without a
// link are omitted.
func readUses(source Sources, names []IfName) (map[IfName]Use, error) {
	lister := &dumps{LinkLister: source.Links}
	links, _, err := readLinks(lister, source.NodeAddresses)
	if err != nil {
		return nil, err
	}
	uses, err := configured(source.Links, lister, lister.links)
	if err != nil {
		return nil, err
	}
	if tables, ok := source.Links.(routing); ok {
		if err := filtered(tables, lister.links, names, uses); err != nil {
			return nil, err
		}
	}
	found := make(map[IfName]Use, len(names))
	for _, name := range names {
		if !slices.ContainsFunc(links, func(l link) bool { return l.Interface == name }) {
			continue
		}
		if found[name], err = useWithFunctions(source, name, links, uses); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// useWithFunctions returns the use of a link or, if it is a physical function, of one of its virtual or scalable
// functions, which move together with it. Uses of the link that cannot be restored take precedence, so they are checked
// first.
func useWithFunctions(source Sources, name IfName, links []link, uses map[int]Use) (Use, error) {
	if use := useOf(name, links, uses); use.Reason != "" && !use.Restorable {
		return use, nil
	}
	functions, err := linksOfFunctions(source.Sys, name)
	if err != nil {
		return Use{}, err
	}
	for _, function := range functions {
		if use := useOf(function, links, uses); use.Reason != "" {
			return Use{Reason: fmt.Sprintf("the node uses its function %s: %s", function, use.Reason)}, nil
		}
	}
	return useOf(name, links, uses), nil
}

// useOf returns the use of a single link. Upper devices and the node's own traffic take precedence over uses that can
// be restored.
func useOf(name IfName, links []link, uses map[int]Use) Use {
	var use Use
	for i := range links {
		l := &links[i]
		switch {
		case l.Parent == name:
			return Use{Reason: fmt.Sprintf("the %s %s is on top of it", l.Kind, l.Interface)}
		case l.Interface != name:
		case l.Master != "":
			return Use{Reason: fmt.Sprintf("it is a port of the %s %s", l.MasterKind, l.Master)}
		case l.DefaultRoute:
			return Use{Reason: "it, or a link on top of it, carries a default route or an address of the node"}
		default:
			use = uses[l.index]
		}
	}
	return use
}

// configured returns the uses of links with addresses, routes or rules, and of all links below them, by link index.
func configured(source, lister LinkLister, list []netlink.Link) (map[int]Use, error) {
	uses := map[int]Use{}
	add := func(index int, restorable bool, format string, args ...any) {
		if use, known := uses[index]; !known || use.Restorable && !restorable {
			uses[index] = Use{Reason: fmt.Sprintf(format, args...), Restorable: restorable}
		}
	}
	addresses, err := lister.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("cannot list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.IPNet != nil && !a.IP.IsLinkLocalUnicast() {
			add(a.LinkIndex, true, "it has the address %s", a.IPNet)
		}
	}
	if tables, ok := source.(routing); ok {
		if err := routed(tables, list, add); err != nil {
			return nil, err
		}
	}
	// Iterate over a copy of the keys, since the loop adds the lower devices. Devices further down are found through
	// the topmost device.
	for _, index := range slices.Collect(maps.Keys(uses)) {
		for below := range withLower([]int{index}, list) {
			if below != index {
				add(below, false, "a link on top of it is in use: %s", uses[index].Reason)
			}
		}
	}
	return uses, nil
}

// routed adds the links that are used by rules, or by routes in any table.
func routed(
	table routing, list []netlink.Link, add func(index int, restorable bool, format string, args ...any),
) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := table.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("cannot list routes: %w", err)
		}
		for i := range routes {
			r := &routes[i]
			if isOwnRoute(r) {
				continue
			}
			add(r.LinkIndex, !isSpecialRoute(r), "it has a route to %s in table %d", destination(r), r.Table)
			for _, hop := range r.MultiPath {
				add(hop.LinkIndex, false, "it is a path of the multipath route to %s in table %d", destination(r), r.Table)
			}
		}
	}
	rules, err := table.RuleList(unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("cannot list rules: %w", err)
	}
	for i := range rules {
		for _, l := range list {
			if name := l.Attrs().Name; rules[i].IifName == name || rules[i].OifName == name {
				add(l.Attrs().Index, true, "the routing rule with priority %d refers to it", rules[i].Priority)
			}
		}
	}
	return nil
}

// filtered adds links with queueing disciplines, filters or permanent neighbors, which the kernel discards when a link
// moves to another namespace, and links with an XDP program. Disciplines that the kernel attaches by default have no
// handle (attach_default_qdiscs in net/sched/sch_generic.c).
func filtered(table routing, list []netlink.Link, names []IfName, uses map[int]Use) error {
	for _, l := range list {
		attrs := l.Attrs()
		if use, known := uses[attrs.Index]; !slices.Contains(names, IfName(attrs.Name)) || known && !use.Restorable {
			continue
		}
		neighbours, err := table.NeighList(attrs.Index, unix.AF_UNSPEC)
		if err != nil {
			return fmt.Errorf("cannot list the neighbours of %s: %w", attrs.Name, err)
		}
		for i := range neighbours {
			if n := &neighbours[i]; n.State&unix.NUD_PERMANENT != 0 && n.IP != nil {
				uses[attrs.Index] = Use{Reason: fmt.Sprintf("it has the permanent neighbour %s", n.IP), Restorable: true}
			}
		}
		disciplines, err := table.QdiscList(l)
		if err != nil {
			return fmt.Errorf("cannot list the queueing disciplines of %s: %w", attrs.Name, err)
		}
		for _, discipline := range disciplines {
			if handle := discipline.Attrs().Handle; handle != 0 {
				uses[attrs.Index] = Use{Reason: fmt.Sprintf("it has the queueing discipline %s %s", discipline.Type(),
					netlink.HandleStr(handle))}
			}
		}
		if attrs.Xdp != nil && attrs.Xdp.Attached {
			uses[attrs.Index] = Use{Reason: fmt.Sprintf("it has the XDP program %d", attrs.Xdp.ProgId)}
		}
	}
	return nil
}

// isOwnRoute reports whether the kernel created a route on its own because the link is up.
func isOwnRoute(r *netlink.Route) bool {
	return r.Protocol == unix.RTPROT_KERNEL && r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast())
}

// isSpecialRoute reports whether a route has more than a destination, a gateway and numbers.
func isSpecialRoute(r *netlink.Route) bool {
	return r.Encap != nil || r.NewDst != nil || r.Via != nil || r.MPLSDst != nil || len(r.MultiPath) > 0
}

func destination(r *netlink.Route) string {
	if r.Dst == nil {
		return "everything"
	}
	return r.Dst.String()
}

// linksOfFunctions returns the links, in the host's namespace, of the virtual and scalable functions that belong to a
// link's PCI function.
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
