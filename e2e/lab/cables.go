package lab

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// wireName is the bridge, in the control plane's network namespace, that connects the links of several nodes.
const wireName = "wire0"

// uplinkName is a node's link to the network for nodes and pods, which also includes the API server. Inside the node,
// the link is a port on the bridge that has the node's address, so all nodes and their pods share one network segment.
const uplinkName = "uplink"

// Segment is a network that a node can be disconnected from.
type Segment string

// The segments of a multi-node cluster.
const (
	// API is the network for nodes and pods, including the API server.
	API Segment = "api"
	// Wire is the network that connects the links eth1, eth2 and so on of all nodes.
	Wire Segment = "wire"
)

// Segments lists all segments.
func Segments() []Segment { return []Segment{API, Wire} }

// cable connects a node's link to a bridge port on the control plane's machine. It is a veth pair: the link is in the
// node's network namespace, and its peer, the port, is in the network namespace of the cluster's process 1. The cluster
// can therefore remove the carrier without involving the node. Inside the node, the link has the given index and
// hardware address. The kernel accepts a requested index if it is not in use in the namespace.
type cable struct {
	link, port string
	index      int
	address    net.HardwareAddr
	bridge     string
}

// cables returns a node's cables for the given boot. Names and hardware addresses are stable, whereas indexes and their
// order differ from those in the previous boot. On real machines, a reboot may change the order in which drivers probe
// devices. To imitate this, each boot starts at a different base index and rotates the links, so that code fails if it
// relies on an index or an order from an earlier boot. The bases repeat after ten boots. The addresses are locally
// administered (the second-lowest bit of the first byte). The node number and the link number each occupy one byte,
// which limits maxNodes and maxNodeLinks.
func (n *Node) cables(boot int) []cable {
	number, links := n.state.Number, n.state.Links
	// The first indexes belong to lo and the pod bridge.
	base := 10 + boot%10*(maxNodeLinks+10)
	all := []cable{{
		link: uplinkName, port: fmt.Sprintf("api-%d", number), index: base, bridge: bridgeName,
		address: net.HardwareAddr{0x02, 0x4c, 0x41, 0x43, byte(number), 0x00},
	}}
	for i := range links {
		all = append(all, cable{
			link: fmt.Sprintf("eth%d", i+1), port: fmt.Sprintf("wire-%d-%d", number, i+1),
			index: base + 1 + (i+boot-1)%links, bridge: wireName,
			address: net.HardwareAddr{0x02, 0x4c, 0x41, 0x43, byte(number), byte(i + 1)},
		})
	}
	return all
}

// ports returns the names of the peers of a node's links to a segment.
func (n *Node) ports(segment Segment) []string {
	var ports []string
	// Any boot number will do: only names and bridges are used, and they are the same for every boot.
	for _, c := range n.cables(0) {
		if (segment == API) == (c.bridge == bridgeName) {
			ports = append(ports, c.port)
		}
	}
	return ports
}

// plug connects the cables of a node that has just started. On failure, it does not undo anything, because the next
// boot begins with unplug. The node's bridge must exist: the node's process 1 creates it before accepting requests.
func (n *Node) plug(boot int) error {
	outside, err := netns.GetFromPath(n.cluster.process().namespace("net"))
	if err != nil {
		return err
	}
	defer func() { _ = outside.Close() }() // only names the namespace
	for _, c := range n.cables(boot) {
		link := named(c.link)
		link.Index, link.HardwareAddr = c.index, c.address
		veth := &netlink.Veth{LinkAttrs: link, PeerName: c.port, PeerNamespace: netlink.NsFd(outside)}
		err := n.addLink(veth)
		if err == nil && c.link == uplinkName {
			err = n.withHandle(func(h *netlink.Handle) error { return setMaster(h, c.link, c.bridge) })
		}
		if err == nil {
			err = n.cluster.withHandle(func(h *netlink.Handle) error {
				return errors.Join(setMaster(h, c.port, c.bridge), setUp(h, c.port))
			})
		}
		if err != nil {
			return fmt.Errorf("cannot connect %s to %s: %w", c.link, c.bridge, err)
		}
	}
	return nil
}

// unplug removes a node's links, if there are any, even if the node's network namespace is still in use. The kernel
// destroys a dead node's namespace and links asynchronously (cleanup_net). A boot must not wait for this, because it
// reuses the port names. Deleting a port also deletes the link at its other end.
func (n *Node) unplug() error {
	return n.cluster.withHandle(func(h *netlink.Handle) error {
		for _, segment := range Segments() {
			for _, port := range n.ports(segment) {
				link, err := h.LinkByName(port)
				if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
					continue
				}
				if err == nil {
					err = h.LinkDel(link)
				}
				// It is not an error if the port is missing: the kernel removes it when its peer's namespace is
				// destroyed.
				if err != nil && !errors.Is(err, unix.ENODEV) {
					return fmt.Errorf("cannot remove %s: %w", port, err)
				}
			}
		}
		return nil
	})
}

// Disconnect disconnects a node's links from a segment as if the cables had been pulled: the links remain, but lose
// their carrier. The node must be on. Its next boot reconnects all cables. Disconnect sets the ports down on the
// control plane's side (veth_close removes the carrier from both ends), so the effect on the node is the same as when a
// cable is pulled: the link is still up, but without LOWER_UP. Disconnect may be called more than once.
func (n *Node) Disconnect(segment Segment) error {
	return n.eachPort("disconnect", segment, func(h *netlink.Handle, port netlink.Link) error {
		return h.LinkSetDown(port)
	})
}

// Connect reverts Disconnect.
func (n *Node) Connect(segment Segment) error {
	return n.eachPort("connect", segment, func(h *netlink.Handle, port netlink.Link) error {
		return h.LinkSetUp(port)
	})
}

// Connected reports whether all of the node's cables to a segment are connected.
func (n *Node) Connected(segment Segment) (bool, error) {
	connected := true
	err := n.eachPort("look at", segment, func(_ *netlink.Handle, port netlink.Link) error {
		connected = connected && port.Attrs().Flags&net.FlagUp != 0
		return nil
	})
	return connected, err
}

// eachPort calls do for each port of the node. It returns an error if the node is off, since a node that is off has no
// cables.
func (n *Node) eachPort(verb string, segment Segment, do func(*netlink.Handle, netlink.Link) error) error {
	err := n.cluster.withHandle(func(h *netlink.Handle) error {
		for _, name := range n.ports(segment) {
			port, err := h.LinkByName(name)
			if err == nil {
				err = do(h, port)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot %s %s on segment %q: %w", verb, n, segment, err)
	}
	return nil
}

// setMaster connects a cable by adding its port to the bridge.
func setMaster(h *netlink.Handle, port, bridge string) error {
	link, err := h.LinkByName(port)
	if err != nil {
		return err
	}
	master, err := h.LinkByName(bridge)
	if err != nil {
		return err
	}
	return h.LinkSetMaster(link, master)
}

func setUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	return h.LinkSetUp(link)
}
