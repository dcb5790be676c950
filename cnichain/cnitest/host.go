package cnitest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Boot implements host.Host.
func (n *Node) Boot() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boot(), nil
}

func (n *Node) boot() string { return fmt.Sprintf("boot-%d", n.boots) }

// Rename implements host.Host.
func (n *Node) Rename(pin string, index int, wanted string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, link := range n.pods[pin] {
		if link.Index == index {
			n.rename(pin, name, wanted)
			return nil
		}
	}
	return fmt.Errorf("no link %d in %s", index, pin)
}

// Remove implements host.Host.
func (n *Node) Remove(pin string, index int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, link := range n.pods[pin] {
		if link.Index == index {
			delete(n.pods[pin], name)
		}
	}
	return nil
}

// MoveToHost implements host.Host.
func (n *Node) MoveToHost(pin string, index int, device cnichain.Device) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost {
		return fmt.Errorf("device %s is stuck", device.Name)
	}
	for name, link := range n.pods[pin] {
		if link.Index == index {
			delete(n.pods[pin], name)
			link.Name = device.IfName
			n.host[device.IfName] = link
			return nil
		}
	}
	return fmt.Errorf("no link %d in %s", index, pin)
}

// Isolate implements host.Host.
func (n *Node) Isolate(pin string, index int, target, wanted string) (cnichain.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, link := range n.pods[pin] {
		if link.Index != index {
			continue
		}
		delete(n.pods[pin], name)
		if n.pods[target] == nil {
			n.pods[target] = map[string]cnichain.Link{}
		}
		link.Name = wanted
		n.pods[target][wanted] = link
		return link, nil
	}
	return cnichain.Link{}, fmt.Errorf("no link %d in %s", index, pin)
}

// Destroyed implements host.Host.
func (n *Node) Destroyed(cnichain.Device) (destroyed, known bool, err error) {
	return false, false, nil
}

// RemoveStacked implements host.Host.
func (n *Node) RemoveStacked(string, string, int) error { return nil }

// ResetInPod implements host.Host.
func (n *Node) ResetInPod(string, cnichain.Link, cnichain.Device) error { return nil }

// OnHost implements host.Host.
func (n *Node) OnHost(device cnichain.Device) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, found := n.host[device.IfName]
	return found || device.IfName == "" || device.KeepsLink || n.ofAnotherBoot(device), nil
}

// ofAnotherBoot reports whether a device is virtual and its baseline is from another boot, so it was not moved during
// this boot.
func (n *Node) ofAnotherBoot(device cnichain.Device) bool {
	return device.PCIAddress == "" && device.BootID != n.boot()
}

// Gone implements host.Host. It returns true for functions that RemoveHardware has removed.
func (n *Node) Gone(device cnichain.Device) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed[device.PCIAddress]
}

// PlaceholderNetns implements host.Host.
func (n *Node) PlaceholderNetns(path, name string, _ []net.IPNet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[path] = map[string]cnichain.Link{name: {Name: name, Index: n.next()}}
	return nil
}

// BindDriver implements host.Host. The device's link disappears along with its driver, and reappears when Restore is
// called.
func (n *Node) BindDriver(device cnichain.Device) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.fail["bind"]; err != nil {
		return nil, err
	}
	if device.IfName != "" {
		n.bound[device.IfName] = n.host[device.IfName]
		delete(n.host, device.IfName)
	}
	return []string{"/dev/vfio/" + device.PCIAddress, "/dev/vfio/vfio"}, nil
}

// CheckDeviceNode implements host.Host.
func (n *Node) CheckDeviceNode(file string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fail[file]
}

// FreeAddress implements host.Host.
func (n *Node) FreeAddress(cnichain.Device) error { return nil }

// Snapshot implements host.Host.
func (n *Node) Snapshot(device cnichain.Device) (cnichain.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	device.BootID = n.boot()
	if function, kept := n.functions[device.PCIAddress]; kept {
		device.VF = &function
	}
	link, found := n.host[device.IfName]
	if device.IfName == "" {
		return device, nil
	}
	if !found {
		return device, fmt.Errorf("device %s: the host has no link %s: %w", device.Name, device.IfName, os.ErrNotExist)
	}
	device.Index, device.MAC, device.MTU = link.Index, link.MAC, link.MTU
	return device, nil
}

// Pin creates the pod, with eth0, if it does not exist yet. A namespace exists as long as any of its paths exists.
func (n *Node) Pin(netns, pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.pods[pin] == nil || n.pinned[pin] == netns
	if known && n.pods[netns] != nil { // after Links or RemovePin
		maps.Copy(n.pods[netns], n.pods[pin]) // both paths refer to the same namespace
		n.pods[pin] = n.pods[netns]
		delete(n.pods, netns)
		delete(n.unpinned, netns)
	}
	if n.pods[pin] == nil {
		n.makePod(pin)
	}
	n.pinned[pin] = netns
	return nil
}

func (n *Node) makePod(path string) {
	n.pods[path] = map[string]cnichain.Link{"eth0": {Name: "eth0", Index: n.next()}}
}

// AddNamespace creates a network namespace, as the runtime does when it creates a sandbox.
func (n *Node) AddNamespace(netns string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.namespaces[netns] = true
}

// EndNamespace removes the runtime's path to a namespace, as the runtime does when it stops the sandbox.
func (n *Node) EndNamespace(netns string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.namespaces, netns)
}

// Unpin removes the pod, unless pods are kept (see KeepPods).
func (n *Node) Unpin(pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.kept || strings.HasSuffix(pin, ".standin") || strings.HasSuffix(pin, ".return") {
		n.returnRDMA(pin)
		delete(n.pods, pin)
	}
	return nil
}

// Exists reports whether there is a network namespace at a path, either the runtime's or the driver's.
func (n *Node) Exists(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[path] != nil || n.namespaces[path]
}

// HoldNamespace implements host.Host. On a Node, a namespace's path is never reused for another namespace.
func (n *Node) HoldNamespace(path string) (held string, release func(), err error) {
	return path, func() {}, nil
}

// NamespaceID implements host.Host. It can be made to fail like a plugin call, using the name "NamespaceID" (see Fail).
func (n *Node) NamespaceID(path string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.fail["NamespaceID"]; err != nil {
		return "", err
	}
	if netns := n.pinned[path]; netns != "" && n.pods[path] != nil {
		return netns, nil
	}
	return path, nil
}

// Links lists the links in a pod. A path that was never a pin is assumed to be the runtime's path. If the pod does not
// exist, Links creates it.
func (n *Node) Links(path string) ([]cnichain.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, wasPin := n.pinned[path]
	if n.pods[path] == nil && wasPin {
		return nil, fmt.Errorf("cannot open network namespace %s: %w", path, os.ErrNotExist)
	}
	if n.pods[path] == nil {
		n.makePod(path)
		n.unpinned[path] = true
	}
	return slices.SortedFunc(maps.Values(n.pods[path]), func(a, b cnichain.Link) int {
		return strings.Compare(a.Name, b.Name)
	}), nil
}

// Contents implements host.Host. Every pod has a default route through the link with index 1 until a plugin adds
// another default route.
func (n *Node) Contents(path string) (host.Contents, error) {
	links, err := n.Links(path)
	if err != nil {
		return host.Contents{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	link, moved := n.pods[path][n.defaults[path]]
	if !moved {
		link.Index = 1
	}
	return host.Contents{Links: links, DefaultRoutes: map[string][]int{"IPv4": {link.Index}}}, nil
}

// Restore brings back the link of a device bound to another driver, and checks that the device is on the host.
func (n *Node) Restore(device cnichain.Device) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if link, bound := n.bound[device.IfName]; bound && device.BindTo != "" {
		n.host[device.IfName] = link
		delete(n.bound, device.IfName)
	}
	if _, found := n.host[device.IfName]; !found && device.IfName != "" && !n.ofAnotherBoot(device) {
		return fmt.Errorf("device %s: the host has no link %s: %w", device.Name, device.IfName, os.ErrNotExist)
	}
	return n.restoreRDMA(&device)
}

// RemovePin removes the pin of a namespace that the runtime keeps alive, as an administrator might do.
func (n *Node) RemovePin(pin string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	netns := n.pinned[pin]
	n.pods[netns] = n.pods[pin] // the namespace still exists
	delete(n.pods, pin)
}
