package node

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// setupNetwork gives the new network namespace the API's address on the loopback interface, and a bridge that carries
// the node's address and the pods.
func setupNetwork(s Spec) error {
	if err := serveHere(s); err != nil {
		return err
	}
	if _, err := makeBridge(s); err != nil {
		return err
	}
	return forward()
}

// serveHere gives the API's address to the loopback interface.
func serveHere(s Spec) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("cannot find the loopback interface: %w", err)
	}
	return address(lo, s.APIAddress+"/32")
}

// makeBridge makes the bridge that carries the node's address and the pods.
func makeBridge(s Spec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = s.Bridge
	// Without an address of its own a bridge takes the lowest of its ports', which changes as pods come and go: those
	// that stay then talk to an address that is gone, until they ask again.
	attrs.HardwareAddr = net.HardwareAddr{0x02, 0x4c, 0x41, 0x42, 0x00, 0x01}
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("cannot make the bridge %s: %w", s.Bridge, err)
	}
	return bridge, address(bridge, s.NodeAddress)
}

// forward lets pods reach other networks than their own.
func forward() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("cannot switch IP forwarding on: %w", err)
	}
	return nil
}

// address adds cidr to the link and sets it up.
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
