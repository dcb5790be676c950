package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Netlink opens a handle for the node's network namespace. Tests use the handle to create simulated hardware. The
// caller must close the handle. A handle works on any thread, because a socket stays in the network namespace in which
// it was created. A handle must not be used concurrently.
func (m *Machine) Netlink() (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(m.process().namespace("net"))
	if err != nil {
		return nil, fmt.Errorf("cannot open the network namespace of %s: %w", m, err)
	}
	defer func() { _ = ns.Close() }() // the handle's socket stays in the namespace
	// Open only the routing family: opening other families fails if the kernel does not have the corresponding modules.
	return netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
}

// AddVeth creates a pair of connected interfaces on the node and sets both up. A macvlan can use either interface as
// its parent. The pair exists until DeleteLink is called or the node terminates. Deleting one end deletes both.
func (m *Machine) AddVeth(name, peer string) error {
	return m.addLink(&netlink.Veth{LinkAttrs: named(name), PeerName: peer}, peer)
}

// AddBridge creates a bridge on the node with the given interfaces as its ports, and sets it up.
func (m *Machine) AddBridge(name string, ports ...string) error {
	if err := m.addLink(&netlink.Bridge{LinkAttrs: named(name)}); err != nil {
		return err
	}
	return m.withHandle(func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		for _, p := range ports {
			port, err := h.LinkByName(p)
			if err != nil {
				return fmt.Errorf("cannot find the bridge port %s: %w", p, err)
			}
			if err := h.LinkSetMaster(port, bridge); err != nil {
				return fmt.Errorf("cannot make %s a port of %s: %w", p, name, err)
			}
		}
		return nil
	})
}

// DeleteLink removes an interface from the node. For a veth, it also removes the peer. It returns an error if the
// node's own namespace does not contain the interface, for example because the interface is in a pod.
func (m *Machine) DeleteLink(name string) error {
	return m.withHandle(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("cannot find interface %s: %w", name, err)
		}
		return h.LinkDel(link)
	})
}

// addLink creates a link, and sets up the link and others given by name. On failure, it does not undo anything. Links
// are looked up by name, since the kernel chooses the index unless the link specifies one.
func (m *Machine) addLink(link netlink.Link, options ...string) error {
	return m.withHandle(func(h *netlink.Handle) error {
		name := link.Attrs().Name
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("cannot make interface %s: %w", name, err)
		}
		for _, n := range append(options, name) {
			made, err := h.LinkByName(n)
			if err != nil {
				return fmt.Errorf("cannot find interface %s: %w", n, err)
			}
			if err := h.LinkSetUp(made); err != nil {
				return fmt.Errorf("cannot set interface %s up: %w", n, err)
			}
		}
		return nil
	})
}

func (m *Machine) withHandle(do func(*netlink.Handle) error) error {
	h, err := m.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	return do(h)
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}
