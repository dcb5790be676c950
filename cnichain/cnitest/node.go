package cnitest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Node is a kernel with CNI plugins on it. Every plugin that is none of host-device, host-local and tuning makes an
// interface. It is safe for concurrent use.
type Node struct {
	mu    sync.Mutex
	index int
	host  map[string]cnichain.Link            // by name
	pods  map[string]map[string]cnichain.Link // by pin, by name
	// unpinned are the runtime's paths of pods that no attachment has pinned yet: nothing of a chain is in them.
	unpinned map[string]bool
	// pinned has the runtime's path of the namespace of each pin; namespaces are the existing paths of the runtime.
	pinned     map[string]string
	namespaces map[string]bool
	leases     map[string]bool // by container and interface
	calls      []string
	fail       map[string]error
	lies       map[string]bool // by call
	hold       map[string]chan struct{}
	lost       bool
	boots      int
	kept       bool
	// removed are PCI functions that the machine no longer has.
	removed map[string]bool
	// volatile are the plugins that leave nothing behind which outlives the machine.
	volatile map[string]bool
	// bound are the links, by name, of devices that have another driver.
	bound map[string]cnichain.Link
	// rdma are the RDMA devices by their index, rdmaMode whose they are.
	rdma     map[uint32]*rdmaDevice
	rdmaMode string
	// lateGIDs is for how many readings of a table it lacks the GIDs of addresses.
	lateGIDs int
	// functions are what physical functions keep, by PCI address of the virtual one.
	functions map[string]cnichain.VFConfig
}

// NewNode makes a node with links on its host.
func NewNode(links ...string) *Node {
	node := &Node{
		index: 10, host: map[string]cnichain.Link{}, pods: map[string]map[string]cnichain.Link{},
		unpinned: map[string]bool{},
		pinned:   map[string]string{}, namespaces: map[string]bool{}, leases: map[string]bool{},
		fail: map[string]error{}, lies: map[string]bool{}, hold: map[string]chan struct{}{}, removed: map[string]bool{},
		bound: map[string]cnichain.Link{}, rdma: map[uint32]*rdmaDevice{}, functions: map[string]cnichain.VFConfig{},
	}
	for _, name := range links {
		node.AddHostLink(name)
	}
	return node
}

// String shows everything that a chain must not leave behind: links of the host and of pods but eth0, leases.
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

// Calls are the plugin calls so far, as "type COMMAND interface".
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

// Fail makes calls fail: "tuning ADD" before anything is done, "tuning ADD after" after the effect. A nil error ends
// it.
func (n *Node) Fail(call string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail[call] = err
}

// Lie makes calls such as "tuning ADD" report success without an effect.
func (n *Node) Lie(call string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lies[call] = true
}

// Lose makes devices that leave a pod vanish, as hardware does for a while or when it breaks; Find ends it, and they
// are where AddHostLink puts them.
func (n *Node) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = true
}

// KeepPods makes pods outlive their pin, as they do while their containers run, so that what is in them can be seen.
func (n *Node) KeepPods() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = true
}

// RemoveHardware takes a PCI function out of the machine, and its link out of wherever it is.
func (n *Node) RemoveHardware(address, pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed[address] = true
	delete(n.pods[pin], name)
}

// Find ends Lose.
func (n *Node) Find() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = false
}

// Hold makes calls such as "tuning ADD" wait, before anything is done, until release is called or their context ends.
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

// AddHostLink makes a link on the host.
func (n *Node) AddHostLink(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host[name] = cnichain.Link{Name: name, Index: n.next()}
}

// RemoveHostLink takes a link away from the host.
func (n *Node) RemoveHostLink(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.host, name)
}

// AddPodLink makes a link in a pod that is pinned.
func (n *Node) AddPodLink(pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[pin][name] = cnichain.Link{Name: name, Index: n.next()}
}

// DeletePodLink removes a link of a pod, as an application may.
func (n *Node) DeletePodLink(pin, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods[pin], name)
}

// RenamePodLink renames a link of a pod, as an application may.
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

// Keep sets the settings that a physical function stores for the virtual one at a PCI address.
func (n *Node) Keep(address string, config cnichain.VFConfig) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.functions[address] = config
}

// Volatile declares that all effects of a plugin end with the kernel.
func (n *Node) Volatile(plugin string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.volatile == nil {
		n.volatile = map[string]bool{}
	}
	n.volatile[plugin] = true
}

// Reboot ends every namespace. Leases stay, as files do.
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
