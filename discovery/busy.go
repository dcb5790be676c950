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

// Use is the node's own use of a link at one time.
type Use struct {
	// Reason has a form such as "it is a port of the bridge br0"; empty if the node does not use the link.
	Reason string
	// Restorable is true if the node only has its own addresses, routes and rules on the link, which can be restored
	// when the link returns. It is false for a link that carries a default route or an address of the Node object.
	Restorable bool
}

// routing contains the queries of Busy in addition to LinkLister; *netlink.Handle implements it.
type routing interface {
	RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error)
	RuleList(family int) ([]netlink.Rule, error)
	NeighList(linkIndex, family int) ([]netlink.Neigh, error)
	QdiscList(netlink.Link) ([]netlink.Qdisc, error)
}

// Busy returns the node's current use of links, in one reading. A busy link must not be taken from the host. A missing
// link is not busy. The use of a physical function includes the use of its virtual functions that are on the host.
//
// It is called immediately before a device is taken, and for a few links. Therefore it reads the routes of all tables
// and the rules, which Read does not, and no hardware.
func Busy(ctx context.Context, source Sources, names ...IfName) (map[IfName]Use, error) {
	return attempt(ctx, func() (map[IfName]Use, error) { return readUses(source, names) })
}

// readUses reads the node's use of links. Links, addresses and routes are dumped once for all names. Names without a
// link are left out.
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
		if found[name], err = useWithVFs(source, name, links, uses); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// useWithVFs returns the use of a link or, if it is a physical function, of one of its virtual functions, which move
// together with it. Uses that cannot be restored take precedence, so they are checked first.
func useWithVFs(source Sources, name IfName, links []link, uses map[int]Use) (Use, error) {
	if use := useOf(name, links, uses); use.Reason != "" && !use.Restorable {
		return use, nil
	}
	functions, err := linksOfVFs(source.Sys, name)
	if err != nil {
		return Use{}, err
	}
	for _, function := range functions {
		if use := useOf(function, links, uses); use.Reason != "" {
			return Use{Reason: fmt.Sprintf("the node uses its virtual function %s: %s", function, use.Reason)}, nil
		}
	}
	return useOf(name, links, uses), nil
}

// useOf returns the use of one link. Upper devices and the node's own traffic take precedence over uses that can be
// restored.
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

// configured returns, by index, the uses of links that have addresses, routes or rules, and of all links below them.
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
	// The loop iterates over a copy of the keys, since it adds the lower devices. Their own lower devices are found
	// through the topmost device.
	for _, index := range slices.Collect(maps.Keys(uses)) {
		for below := range withLower([]int{index}, list) {
			if below != index {
				add(below, false, "a link on top of it is in use: %s", uses[index].Reason)
			}
		}
	}
	return uses, nil
}

// routed adds the uses of links by routes of all tables and by rules.
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
				add(hop.LinkIndex, false, "it is a next hop of the route to %s in table %d", destination(r), r.Table)
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

// filtered adds the settings that the kernel discards when a link changes its namespace: queueing disciplines, filters
// and permanent neighbors. Disciplines that the kernel attaches itself have no handle (net/sched/sch_generic.c,
// attach_default_qdiscs).
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

// isOwnRoute reports whether the kernel itself created a route because the link is up.
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

// linksOfVFs returns the links in the host's namespace of the virtual functions of a link's PCI function.
func linksOfVFs(fsys fs.ReadLinkFS, name IfName) ([]IfName, error) {
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
	slices.Sort(names)
	return names, nil
}
