package host

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxNetworkEntries limits how many addresses, routes and neighbors are recorded and restored for a link.
const maxNetworkEntries = 1000

// keptAddressFlags are the address flags that users can set. Other flags, such as IFA_F_TENTATIVE, only reflect state.
const keptAddressFlags = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_NOPREFIXROUTE |
	unix.IFA_F_MANAGETEMPADDR

// readNetwork reads a link's network configuration on the node. It omits addresses and routes that the kernel creates:
// link-local and temporary addresses, and addresses and routes advertised by routers.
func readNetwork(handle *netlink.Handle, link netlink.Link) (*cnichain.NetworkConfig, error) {
	config := cnichain.NetworkConfig{TakenAt: sinceBoot()}
	addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("cannot list the addresses of %s: %w", link.Attrs().Name, err)
	}
	for i := range addresses {
		if a := &addresses[i]; !a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TEMPORARY == 0 {
			config.Addresses = append(config.Addresses, nodeAddress(a))
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ofLink := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, LinkIndex: link.Attrs().Index}
		routes, err := handle.RouteListFiltered(family, ofLink, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		if err != nil {
			return nil, fmt.Errorf("cannot list the routes of %s: %w", link.Attrs().Name, err)
		}
		for i := range routes {
			if isNodeRoute(&routes[i]) {
				config.Routes = append(config.Routes, nodeRoute(&routes[i], family))
			}
		}
		neighbours, err := handle.NeighList(link.Attrs().Index, family)
		if err != nil {
			return nil, fmt.Errorf("cannot list the neighbors of %s: %w", link.Attrs().Name, err)
		}
		for i := range neighbours {
			if n := &neighbours[i]; n.State&netlink.NUD_PERMANENT != 0 && n.IP != nil {
				config.Neighbours = append(config.Neighbours, cnichain.NodeNeighbor{IP: n.IP.String(),
					MAC: n.HardwareAddr.String()})
			}
		}
	}
	if n := len(config.Addresses) + len(config.Routes) + len(config.Neighbours); n > maxNetworkEntries {
		return nil, fmt.Errorf("cannot record what the node has on %s: %d addresses, routes and neighbors are more "+
			"than the %d that can be restored; remove allowInUse from its DeviceExposurePolicy", link.Attrs().Name, n,
			maxNetworkEntries)
	}
	return &config, nil
}

// nodeAddress returns an address with all properties needed to add it again. Only addresses that expire have lifetimes,
// in seconds.
func nodeAddress(a *netlink.Addr) cnichain.NodeAddress {
	address := cnichain.NodeAddress{Address: a.IPNet.String(), Label: a.Label, Scope: a.Scope,
		Flags: a.Flags & keptAddressFlags}
	if a.Flags&unix.IFA_F_PERMANENT == 0 {
		address.ValidLifetime, address.PreferredLifetime = a.ValidLft, a.PreferedLft
	}
	if a.Peer != nil {
		address.Peer = a.Peer.String()
	}
	if a.Broadcast != nil {
		address.Broadcast = a.Broadcast.String()
	}
	return address
}

func isNodeRoute(r *netlink.Route) bool {
	if r.Protocol == unix.RTPROT_KERNEL && r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
		return false
	}
	return r.Table != unix.RT_TABLE_LOCAL && r.Type == unix.RTN_UNICAST && r.Protocol != unix.RTPROT_RA &&
		r.Flags&unix.RTM_F_CLONED == 0
}

// nodeRoute does not handle multipath routes or encapsulation, because discovery never offers a link with such routes.
func nodeRoute(r *netlink.Route, family int) cnichain.NodeRoute {
	route := cnichain.NodeRoute{
		Family: family, Table: r.Table, Priority: r.Priority, Scope: int(r.Scope), Protocol: int(r.Protocol),
		Tos:    r.Tos,
		OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0, MTU: r.MTU, AdvMSS: r.AdvMSS,
	}
	if r.Dst != nil {
		route.Destination = r.Dst.String()
	}
	if r.Gw != nil {
		route.Gateway = r.Gw.String()
	}
	if r.Src != nil {
		route.Source = r.Src.String()
	}
	return route
}

// restoreNetwork adds missing configuration to a link and verifies it. Routes without a gateway are added first,
// because the gateways of other routes are reached through them.
//
// It never removes anything, since the node's network service may have added configuration in the meantime.
func restoreNetwork(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	if device.Network == nil {
		return nil
	}
	found, err := readNetwork(handle, link)
	if err != nil {
		return err
	}
	wanted := device.Network.Remaining(found.TakenAt, found.Addresses)
	var problems []error
	for _, address := range lacking(wanted, found).Addresses {
		problems = append(problems, addAddress(handle, link, &address))
	}
	if found, err = readNetwork(handle, link); err != nil { // adding addresses also adds routes
		return errors.Join(append(problems, err)...)
	}
	missing := lacking(wanted, found)
	for _, route := range missing.Routes { // ordered so that gateways are reachable
		problems = append(problems, addRoute(handle, link, &route))
	}
	for _, neighbour := range missing.Neighbours {
		problems = append(problems, addNeighbour(handle, link, &neighbour))
	}
	if found, err = readNetwork(handle, link); err != nil {
		return errors.Join(append(problems, err)...)
	}
	return errors.Join(append(problems, checkComplete(device.Name, lacking(wanted, found)))...)
}

// lacking returns the part of the node's configuration that is missing from a link.
func lacking(wanted, found *cnichain.NetworkConfig) cnichain.NetworkConfig {
	return cnichain.NetworkConfig{
		Addresses: slices.DeleteFunc(slices.Clone(wanted.Addresses), func(address cnichain.NodeAddress) bool {
			return slices.ContainsFunc(found.Addresses,
				func(a cnichain.NodeAddress) bool { return a.Address == address.Address })
		}),
		Routes: slices.DeleteFunc(slices.Clone(wanted.Routes),
			func(route cnichain.NodeRoute) bool { return slices.Contains(found.Routes, route) }),
		Neighbours: slices.DeleteFunc(slices.Clone(wanted.Neighbours),
			func(n cnichain.NodeNeighbor) bool { return slices.Contains(found.Neighbours, n) }),
	}
}

// checkComplete returns an error if any part of the node's configuration is missing from the link.
func checkComplete(device string, missing cnichain.NetworkConfig) error {
	var lost []string
	for _, address := range missing.Addresses {
		lost = append(lost, "address "+address.Address)
	}
	for _, route := range missing.Routes {
		lost = append(lost, route.String())
	}
	for _, neighbour := range missing.Neighbours {
		lost = append(lost, "neighbor "+neighbour.IP)
	}
	if len(lost) == 0 {
		return nil
	}
	shown := strings.Join(lost[:min(len(lost), 10)], ", ")
	return fmt.Errorf("cannot restore device %s: the node lacks %s", device, shown)
}

// sinceBoot returns the number of seconds since the machine booted. This includes time spent suspended, during which
// address lifetimes also run down (CLOCK_BOOTTIME in clock_gettime(2)).
func sinceBoot() int {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // cannot happen on kernels that run containers with NRI
	}
	return int(now.Sec)
}

// addAddress adds an address to a link or updates an existing one. It is not an error if the address already exists,
// since addAddress is called again after a crash.
func addAddress(handle *netlink.Handle, link netlink.Link, a *cnichain.NodeAddress) error {
	parsed, err := netlink.ParseAddr(a.Address)
	if err == nil {
		parsed.Label, parsed.Scope, parsed.Flags = a.Label, a.Scope, a.Flags
		parsed.ValidLft, parsed.PreferedLft = a.ValidLifetime, a.PreferredLifetime
		parsed.Broadcast = net.ParseIP(a.Broadcast)
		if a.Peer != "" {
			parsed.Peer, err = netlink.ParseIPNet(a.Peer)
		}
	}
	if err == nil {
		err = handle.AddrReplace(link, parsed)
	}
	if err != nil {
		return fmt.Errorf("cannot add address %s to %s: %w", a.Address, link.Attrs().Name, err)
	}
	return nil
}

// addRoute adds a route, or replaces the route with the same destination, table, priority and TOS, which together
// identify a route in the kernel. An empty destination means the default route.
func addRoute(handle *netlink.Handle, link netlink.Link, r *cnichain.NodeRoute) error {
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Family: r.Family, Table: r.Table, Priority: r.Priority,
		Scope: netlink.Scope(r.Scope), Protocol: netlink.RouteProtocol(r.Protocol), Tos: r.Tos, MTU: r.MTU,
		AdvMSS: r.AdvMSS,
		Gw:     net.ParseIP(r.Gateway), Src: net.ParseIP(r.Source),
	}
	if r.OnLink {
		route.SetFlag(netlink.FLAG_ONLINK)
	}
	err := error(nil)
	if r.Destination != "" {
		route.Dst, err = netlink.ParseIPNet(r.Destination)
	}
	if err == nil {
		err = handle.RouteReplace(route)
	}
	if err != nil {
		return fmt.Errorf("cannot add %s to %s: %w", r, link.Attrs().Name, err)
	}
	return nil
}

// addNeighbour adds a permanent neighbor. A baseline contains only permanent neighbors, since the kernel relearns all
// others.
func addNeighbour(handle *netlink.Handle, link netlink.Link, n *cnichain.NodeNeighbor) error {
	mac, err := net.ParseMAC(n.MAC)
	if err == nil {
		err = handle.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(n.IP), HardwareAddr: mac,
		})
	}
	if err != nil {
		return fmt.Errorf("cannot add neighbor %s to %s: %w", n.IP, link.Attrs().Name, err)
	}
	return nil
}
