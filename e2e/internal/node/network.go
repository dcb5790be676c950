package node

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// setupNetwork adds the API's address to the loopback interface of the new network namespace, or a route to that
// address, and creates a bridge with the node's address for the pods. The namespace is new, so none of the links or
// addresses can exist already. setupNetwork is called once, and may run on any thread, because all of process 1's
// threads are in the namespace.
func setupNetwork(s Spec) error {
	if s.Member != nil {
		return setupMember(s)
	}
	if err := serveHere(s); err != nil {
		return err
	}
	if _, err := makeBridge(s); err != nil {
		return err
	}
	if s.Wire != "" {
		if err := makeWire(s.Wire); err != nil {
			return err
		}
	}
	return forward()
}

// setupMember is the counterpart of setupNetwork for a node in a multi-node cluster. The cluster connects the veth
// pairs from outside the node. The route to the API address goes through the control plane's address on the common
// segment. The veth pairs are not connected at this point, but routes do not require a carrier.
func setupMember(s Spec) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("cannot set the loopback interface up: %w", err)
	}
	bridge, err := makeBridge(s)
	if err != nil {
		return err
	}
	if err := routeAPI(s, bridge, s.Member.Gateway); err != nil {
		return err
	}
	return forward()
}

// makeWire creates the bridge that connects the nodes. It only forwards frames and has no addresses.
func makeWire(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	wire := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(wire); err != nil {
		return fmt.Errorf("cannot make the wire %s: %w", name, err)
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1\n"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the kernel does not support IPv6
		return fmt.Errorf("cannot switch IPv6 off on the wire %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(wire); err != nil {
		return fmt.Errorf("cannot set the wire %s up: %w", name, err)
	}
	return nil
}

// routeAPI adds a route to the API server through a gateway on the bridge. A specific route is necessary because nodes
// have no default route: clusters have no connection to other networks.
func routeAPI(s Spec, bridge netlink.Link, gateway string) error {
	_, api, err := net.ParseCIDR(s.APIAddress + "/32")
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: api, Gw: net.ParseIP(gateway)})
	}
	if err != nil {
		return fmt.Errorf("cannot add a route to the API server: %w", err)
	}
	return nil
}

// serveHere adds the API server's address to the loopback interface.
func serveHere(s Spec) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("cannot find the loopback interface: %w", err)
	}
	return address(lo, s.APIAddress+"/32")
}

// makeBridge creates the bridge for the pods and assigns the node's address to it. The kernel does not change a
// hardware address that was set explicitly (br_stp_recalculate_bridge_id). Each member's bridge has a different
// hardware address, because all bridges are on the same segment.
func makeBridge(s Spec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = s.Bridge
	// Without an explicit address, a bridge uses the lowest address of its ports, which changes when pods start and
	// terminate. Other pods would then send to a stale address until they resolve it again.
	attrs.HardwareAddr = net.HardwareAddr{0x02, 0x4c, 0x41, 0x42, 0x00, 0x01}
	if s.Member != nil {
		attrs.HardwareAddr[4] = s.Member.Number
	}
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("cannot make the bridge %s: %w", s.Bridge, err)
	}
	return bridge, address(bridge, s.NodeAddress)
}

// forward enables IP forwarding, so that pods can reach other networks. The setting belongs to the network namespace,
// so the host is not affected.
func forward() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("cannot switch IP forwarding on: %w", err)
	}
	return nil
}

// address assigns the address cidr to a link and sets the link up.
func address(link netlink.Link, cidr string) error {
	name := link.Attrs().Name
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("cannot use %q as an address of %s: %w", cidr, name, err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("cannot add %s to %s: %w", cidr, name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("cannot set %s up: %w", name, err)
	}
	return nil
}
