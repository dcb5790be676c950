// Package view describes the state of a network namespace, for display and for comparison.
//
// Invariant: only [Read] queries the kernel; everything else is pure. Objects that the kernel itself may
// add and remove at any time (loopback addresses, link-local addresses and their routes) are omitted.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// View is the state of a network namespace at a point in time. It can be stored as JSON, as in the journal of runs.
type View struct {
	// Interfaces are sorted by index.
	Interfaces []Interface `json:"interfaces"`
	// Routes are the routes in the main table, in sorted order.
	Routes []Route `json:"routes"`
}

// Interface is a link in a namespace.
type Interface struct {
	Name     string   `json:"name"`
	AltNames []string `json:"altNames,omitempty"`
	Index    int      `json:"index"`
	// Kind is the kernel's link kind (veth, macvlan...), "device" for hardware, or "loopback" for lo.
	Kind string `json:"kind"`
	MAC  string `json:"mac,omitempty"`
	// MTU is the maximum transmission unit in bytes.
	MTU int `json:"mtu"`
	// Up is the administrative state, and Carrier reports whether the link has a carrier.
	Up      bool `json:"up"`
	Carrier bool `json:"carrier"`
	// Master is the name of the bridge, bond or vrf that the link is a port of.
	Master string `json:"master,omitempty"`
	// Addresses are sorted and in CIDR form. Link-local addresses are omitted.
	Addresses []string `json:"addresses,omitempty"`
}

// State returns "up", "down" or "up, no carrier".
func (i *Interface) State() string {
	switch {
	case !i.Up:
		return "down"
	case !i.Carrier:
		return "up, no carrier"
	}
	return "up"
}

// Route is a route in the main table.
type Route struct {
	// Destination is in CIDR form, or "default".
	Destination string `json:"destination"`
	Gateway     string `json:"gateway,omitempty"`
	Interface   string `json:"interface,omitempty"`
	Source      string `json:"source,omitempty"`
	Metric      int    `json:"metric,omitempty"`
	// Type is empty for unicast routes; otherwise, it is blackhole, unreachable...
	Type string `json:"type,omitempty"`
}

// String formats the route in the style of ip(8).
func (r Route) String() string {
	parts := []string{r.Destination}
	if r.Type != "" {
		parts = []string{r.Type, r.Destination}
	}
	for _, part := range []struct{ word, value string }{{"via", r.Gateway}, {"dev", r.Interface}, {"src", r.Source}} {
		if part.value != "" {
			parts = append(parts, part.word, part.value)
		}
	}
	if r.Metric != 0 {
		parts = append(parts, "metric", fmt.Sprint(r.Metric))
	}
	return strings.Join(parts, " ")
}

// Read reads the network namespace at path, or the calling thread's namespace if path is empty. A change during a dump
// may cause incomplete results, which the kernel marks with NLM_F_DUMP_INTR. Read repeats such dumps.
func Read(path string) (View, error) {
	namespace := netns.None()
	if path != "" {
		var err error
		if namespace, err = netns.GetFromPath(path); err != nil {
			return View{}, fmt.Errorf("cannot open network namespace %s: %w", path, err)
		}
		defer func() { _ = namespace.Close() }()
	}
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return View{}, fmt.Errorf("cannot read %s: %w", title(path), err)
	}
	defer handle.Close()
	for attempt := 0; ; attempt++ {
		view, err := read(handle)
		if err == nil {
			return view, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == 9 {
			return View{}, fmt.Errorf("cannot read %s: %w", title(path), err)
		}
		time.Sleep(time.Millisecond << attempt)
	}
}

func title(path string) string {
	if path == "" {
		return "this machine's network namespace"
	}
	return "network namespace " + path
}

func read(handle *netlink.Handle) (View, error) {
	links, err := handle.LinkList()
	if err != nil {
		return View{}, err
	}
	addresses, err := handle.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return View{}, err
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	view := View{Interfaces: []Interface{}, Routes: []Route{}}
	for _, link := range links {
		view.Interfaces = append(view.Interfaces, interfaceOf(link, names, addresses))
	}
	slices.SortFunc(view.Interfaces, func(a, b Interface) int { return cmp.Compare(a.Index, b.Index) })
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := handle.RouteList(nil, family)
		if err != nil {
			return View{}, err
		}
		for i := range routes {
			view.Routes = append(view.Routes, routesOf(&routes[i], names)...)
		}
	}
	slices.SortFunc(view.Routes, func(a, b Route) int { return cmp.Compare(a.String(), b.String()) })
	return view, nil
}

func interfaceOf(link netlink.Link, names map[int]string, addresses []netlink.Addr) Interface {
	attrs := link.Attrs()
	shown := Interface{
		Name: attrs.Name, AltNames: slices.Sorted(slices.Values(attrs.AltNames)), Index: attrs.Index, Kind: link.Type(),
		MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0,
		Carrier: attrs.RawFlags&unix.IFF_LOWER_UP != 0, Master: names[attrs.MasterIndex],
	}
	if attrs.Flags&net.FlagLoopback != 0 {
		shown.Kind, shown.MAC = "loopback", ""
		return shown
	}
	for i := range addresses {
		if addresses[i].LinkIndex == attrs.Index && !addresses[i].IP.IsLinkLocalUnicast() {
			shown.Addresses = append(shown.Addresses, addresses[i].IPNet.String())
		}
	}
	slices.Sort(shown.Addresses)
	return shown
}

// routesOf returns one route per next hop. It omits link-local and multicast routes, which the kernel creates for
// addresses.
func routesOf(route *netlink.Route, names map[int]string) []Route {
	shown := Route{Destination: "default", Metric: route.Priority, Source: ipText(route.Src)}
	if route.Dst != nil {
		if route.Dst.IP.IsLinkLocalUnicast() || route.Dst.IP.IsMulticast() {
			return nil
		}
		if ones, _ := route.Dst.Mask.Size(); ones > 0 || !route.Dst.IP.IsUnspecified() {
			shown.Destination = route.Dst.String()
		}
	}
	switch route.Type {
	case unix.RTN_UNICAST, unix.RTN_UNSPEC:
	case unix.RTN_BLACKHOLE:
		shown.Type = "blackhole"
	case unix.RTN_UNREACHABLE:
		shown.Type = "unreachable"
	case unix.RTN_PROHIBIT:
		shown.Type = "prohibit"
	default:
		shown.Type = fmt.Sprintf("type %d", route.Type)
	}
	if len(route.MultiPath) == 0 {
		shown.Gateway, shown.Interface = gatewayText(route.Gw, route.Via), names[route.LinkIndex]
		return []Route{shown}
	}
	routes := make([]Route, 0, len(route.MultiPath))
	for _, hop := range route.MultiPath {
		route := shown
		route.Gateway, route.Interface = gatewayText(hop.Gw, hop.Via), names[hop.LinkIndex]
		routes = append(routes, route)
	}
	return routes
}

func ipText(ip net.IP) string {
	if ip == nil {
		return ""
	}
	return ip.String()
}

// gatewayText returns the gateway, which may be from the same address family or from the other one (RFC 5549).
func gatewayText(ip net.IP, via netlink.Destination) string {
	if ip == nil && via != nil {
		if other, ok := via.(*netlink.Via); ok {
			return other.Addr.String()
		}
	}
	return ipText(ip)
}
