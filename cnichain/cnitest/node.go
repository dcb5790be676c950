package cnitest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Node is a fake kernel with CNI plugins. Every plugin except host-device, host-local and tuning creates an interface.
// Node is safe for concurrent use.
type Node struct {
	mu    sync.Mutex
	index int
	host  map[string]cnichain.Link            // by name
	pods  map[string]map[string]cnichain.Link // by pin, by name
	// unpinned is the set of runtime paths of pods that have not been pinned by an attachment yet. No chain has changed
	// anything in these pods.
	unpinned map[string]bool
	// pinned maps each pin to the path that the runtime uses for the namespace. namespaces is the set of those paths
	// that currently exist.
	pinned     map[string]string
	namespaces map[string]bool
	leases     map[string]bool // by container and interface
	// defaults maps each pod to the interface to which a plugin has moved the default route.
	defaults map[string]string
	calls    []string
	fail     map[string]error
	lies     map[string]bool // by call
	hold     map[string]chan struct{}
	lost     bool
	boots    int
	kept     bool
	// removed is the set of PCI functions that have been removed from the machine.
	removed map[string]bool
	// volatile is the set of plugins that leave no state behind that survives a reboot.
	volatile map[string]bool
	// bound contains, by name, the links of devices that are bound to another driver.
	bound map[string]cnichain.Link
	// rdma contains the RDMA devices by index. rdmaMode is the node's RDMA mode.
	rdma     map[uint32]*rdmaDevice
	rdmaMode string
	// lateGIDs is the number of upcoming reads for which GID tables will be empty.
	lateGIDs int
	// functions maps the PCI address of each virtual function to the settings that its physical function stores for it.
	functions map[string]cnichain.VFConfig
}

// NewNode returns a node with the given links on the host.
func NewNode(links ...string) *Node {
	node := &Node{
		index: 10, host: map[string]cnichain.Link{}, pods: map[string]map[string]cnichain.Link{},
		unpinned: map[string]bool{},
		pinned:   map[string]string{}, namespaces: map[string]bool{}, leases: map[string]bool{},
		defaults: map[string]string{},
		fail:     map[string]error{}, lies: map[string]bool{}, hold: map[string]chan struct{}{}, removed: map[string]bool{},
		bound: map[string]cnichain.Link{}, rdma: map[uint32]*rdmaDevice{}, functions: map[string]cnichain.VFConfig{},
	}
	for _, name := range links {
		node.AddHostLink(name)
	}
	return node
}

// String describes everything that a chain must not leave behind: the links on the host, the links in pods except eth0,
// and the leases.
func (n *Node) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := []string{}
	for _, pin := range slices.Sorted(maps.Keys(n.pods)) {
		if n.unpinned[pin] {
			continue
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(n.pods[pin])),
			func(name string) bool { return name == "eth0" })
		pods = append(pods, fmt.Sprintf("%s%v", filepath.Base(pin), names))
	}
	return fmt.Sprintf("host %v pods %v leases %v", slices.Sorted(maps.Keys(n.host)), pods,
		slices.Sorted(maps.Keys(n.leases)))
}

// Calls returns all plugin calls so far, each as "type COMMAND interface".
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// ForgetCalls clears the list of calls.
func (n *Node) ForgetCalls() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = nil
}

// Fail causes calls to fail: "tuning ADD" before, and "tuning ADD after" after they take effect. A nil error lets the
// calls succeed again.
func (n *Node) Fail(call string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail[call] = err
}

// Lie causes calls such as "tuning ADD" to report success without doing anything.
func (n *Node) Lie(call string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lies[call] = true
}

// Lose causes devices to disappear when they leave a pod, as hardware may do, either temporarily or because it failed.
// Find ends this, and AddHostLink brings back a device.
func (n *Node) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = true
}

// KeepPods causes pods to outlive their pin, as real pods do while their containers are running, so that tests can
// inspect them.
func (n *Node) KeepPods() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = true
}

// RemoveHardware removes a PCI function from the machine, and its link from the pod.
func (n *Node) RemoveHardware(address, pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed[address] = true
	delete(n.pods[pin], name)
}

// Find ends the effect of Lose.
func (n *Node) Find() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = false
}

// Hold blocks calls such as "tuning ADD", before they take effect, until release is called or the call's context is
// canceled.
func (n *Node) Hold(call string) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(chan struct{})
	n.hold[call] = held
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.hold, call)
		close(held)
	})
}

// AddHostLink creates a link on the host.
func (n *Node) AddHostLink(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host[name] = cnichain.Link{Name: name, Index: n.next()}
}

// RemoveHostLink removes a link from the host.
func (n *Node) RemoveHostLink(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.host, name)
}

// AddPodLink creates a link in a pinned pod.
func (n *Node) AddPodLink(pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[pin][name] = cnichain.Link{Name: name, Index: n.next()}
}

// DeletePodLink removes a link from a pod, as an application might do.
func (n *Node) DeletePodLink(pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods[pin], name)
}

// RenamePodLink renames a link in a pod, as an application might do.
func (n *Node) RenamePodLink(pin, name, wanted string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rename(pin, name, wanted)
}

func (n *Node) rename(pin, name, wanted string) {
	link := n.pods[pin][name]
	link.Name = wanted
	n.pods[pin][wanted] = link
	delete(n.pods[pin], name)
}

// Keep sets the settings that a physical function stores for the virtual function at a PCI address.
func (n *Node) Keep(address string, config cnichain.VFConfig) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.functions[address] = config
}

// Volatile declares that no effect of a plugin survives a reboot.
func (n *Node) Volatile(plugin string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.volatile == nil {
		n.volatile = map[string]bool{}
	}
	n.volatile[plugin] = true
}

// Reboot destroys all namespaces. Leases persist, since they are files.
func (n *Node) Reboot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boots++
	for pin := range n.pods {
		n.returnRDMA(pin)
	}
	clear(n.pods)
	clear(n.namespaces)
}

func (n *Node) next() int { n.index++; return n.index }
