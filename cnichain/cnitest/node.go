package cnitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// PluginDir is where the node's plugins seem to be. Every plugin is there.
const PluginDir = "/opt/cni/bin"

// Node is a kernel with CNI plugins on it. Every plugin that is none of host-device, host-local and tuning makes an
// interface. It is safe for concurrent use.
type Node struct {
	mu     sync.Mutex
	index  int
	host   map[string]cnichain.Link            // by name
	pods   map[string]map[string]cnichain.Link // by pin, by name
	leases map[string]bool                     // by container and interface
	calls  []string
	fail   map[string]error
	lies   map[string]bool // by call
	hold   map[string]chan struct{}
	lost   bool
	kept   bool
	// removed are PCI functions that the machine does not have any more.
	removed map[string]bool
	// bound are the links, by name, of devices that have another driver.
	bound map[string]cnichain.Link
}

// NewNode makes a node with links on its host.
func NewNode(links ...string) *Node {
	node := &Node{
		index: 10, host: map[string]cnichain.Link{}, pods: map[string]map[string]cnichain.Link{}, leases: map[string]bool{},
		fail: map[string]error{}, lies: map[string]bool{}, hold: map[string]chan struct{}{}, removed: map[string]bool{}, bound: map[string]cnichain.Link{},
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
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(n.pods[pin])), func(name string) bool { return name == "eth0" })
		pods = append(pods, fmt.Sprintf("%s%v", filepath.Base(pin), names))
	}
	return fmt.Sprintf("host %v pods %v leases %v", slices.Sorted(maps.Keys(n.host)), pods, slices.Sorted(maps.Keys(n.leases)))
}

// Calls are the plugin calls so far, as "type COMMAND interface".
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// ForgetCalls begins the list of calls anew.
func (n *Node) ForgetCalls() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = nil
}

// Fail makes calls fail: "tuning ADD" before anything is done, "tuning ADD after" after the effect. A nil error ends it.
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

// Lose makes devices that leave a pod vanish, as hardware does for a while or when it breaks; Find ends it, and they are
// where AddHostLink puts them.
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

// Rename implements cnichain.Host.
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

// Remove implements cnichain.Host.
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

// SendHome implements cnichain.Host.
func (n *Node) SendHome(pin string, index int, device cnichain.Device) error {
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

// Undress implements cnichain.Host.
func (n *Node) Undress(string, cnichain.Link, cnichain.Device) error { return nil }

// Home implements cnichain.Host.
func (n *Node) Home(device cnichain.Device) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, home := n.host[device.IfName]
	return home, nil
}

// Gone implements cnichain.Host: what RemoveHardware has removed.
func (n *Node) Gone(device cnichain.Device) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed[device.PCIAddress]
}

// StandIn implements cnichain.Host.
func (n *Node) StandIn(path, name string, _ []net.IPNet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[path] = map[string]cnichain.Link{name: {Name: name, Index: n.next()}}
	return nil
}

// Bind implements cnichain.Host: the link of the device goes with its driver, and Restore brings it back.
func (n *Node) Bind(device cnichain.Device) ([]string, error) {
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

// Snapshot implements cnichain.Host.
func (n *Node) Snapshot(device cnichain.Device) (cnichain.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	link, home := n.host[device.IfName]
	if !home {
		return device, fmt.Errorf("device %s: the host has no link %s: %w", device.Name, device.IfName, os.ErrNotExist)
	}
	device.Index, device.MAC, device.MTU = link.Index, link.MAC, link.MTU
	return device, nil
}

// Reboot ends every namespace. Leases stay, as files do.
func (n *Node) Reboot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.pods)
}

func (n *Node) next() int { n.index++; return n.index }

// Pin makes the pod, with eth0.
func (n *Node) Pin(_, pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[pin] == nil {
		n.pods[pin] = map[string]cnichain.Link{"eth0": {Name: "eth0", Index: n.next()}}
	}
	return nil
}

// Unpin forgets the pod.
func (n *Node) Unpin(pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.kept || strings.HasSuffix(pin, ".standin") {
		delete(n.pods, pin)
	}
	return nil
}

// Exists says whether the pod is there.
func (n *Node) Exists(pin string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[pin] != nil
}

// Links lists the links of a pod.
func (n *Node) Links(pin string) ([]cnichain.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, there := n.pods[pin]
	if !there {
		return nil, fmt.Errorf("cannot open network namespace %s: %w", pin, os.ErrNotExist)
	}
	return slices.SortedFunc(maps.Values(links), func(a, b cnichain.Link) int { return strings.Compare(a.Name, b.Name) }), nil
}

// Restore looks for the device on the host.
func (n *Node) Restore(device cnichain.Device) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if link, bound := n.bound[device.IfName]; bound && device.BindTo != "" {
		n.host[device.IfName] = link
		delete(n.bound, device.IfName)
	}
	if _, home := n.host[device.IfName]; !home && device.IfName != "" {
		return fmt.Errorf("device %s: the host has no link %s: %w", device.Name, device.IfName, os.ErrNotExist)
	}
	return nil
}

// FindInPath finds every plugin.
func (n *Node) FindInPath(plugin string, _ []string) (string, error) {
	return filepath.Join(PluginDir, plugin), nil
}

// Decode reads what a plugin answers to VERSION.
func (n *Node) Decode(data []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(data)
}

// ExecPlugin is Call without stderr.
func (n *Node) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	output, err := n.Call(ctx, path, stdin, environ)
	return output.Stdout, err
}

// call is one call of a plugin.
type call struct {
	plugin, command, ifName, netns, container string
	config                                    config
}

type config struct {
	Device     string          `json:"device"`
	PCIBusID   string          `json:"pciBusID"`
	CNIVersion string          `json:"cniVersion"`
	PrevResult json.RawMessage `json:"prevResult"`
	IPAM       json.RawMessage `json:"ipam"`
}

// Call runs a plugin.
func (n *Node) Call(ctx context.Context, path string, stdin []byte, environ []string) (cnichain.CallOutput, error) {
	env := map[string]string{}
	for _, entry := range environ {
		key, value, _ := strings.Cut(entry, "=")
		env[key] = value
	}
	c := call{plugin: filepath.Base(path), command: env["CNI_COMMAND"], ifName: env["CNI_IFNAME"], netns: env["CNI_NETNS"], container: env["CNI_CONTAINERID"]}
	if err := json.Unmarshal(stdin, &c.config); err != nil {
		return failed(c, err)
	}
	if err := n.enter(ctx, c); err != nil {
		return failed(c, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.run(c); err != nil {
		return failed(c, err)
	}
	return c.answer()
}

func failed(c call, err error) (cnichain.CallOutput, error) {
	return cnichain.CallOutput{ExitCode: 1}, &cnichain.ExecError{Plugin: c.plugin, ExitCode: 1, Err: err}
}

// enter records the call and waits while it is held.
func (n *Node) enter(ctx context.Context, c call) error {
	n.mu.Lock()
	n.calls = append(n.calls, c.plugin+" "+c.command+" "+c.ifName)
	held := n.hold[c.plugin+" "+c.command]
	n.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) run(c call) error {
	if err := n.fail[c.plugin+" "+c.command]; err != nil {
		return err
	}
	if !n.lies[c.plugin+" "+c.command] {
		if err := n.effect(c); err != nil {
			return err
		}
	}
	return n.fail[c.plugin+" "+c.command+" after"]
}

// effect is what a plugin does to the node.
func (n *Node) effect(c call) error {
	switch {
	case c.plugin == "tuning":
		if c.command == "ADD" && c.config.PrevResult == nil {
			return errors.New("required prevResult missing")
		}
		return nil
	case c.plugin == "host-local":
		delete(n.leases, c.lease())
		return nil
	case c.command == "ADD":
		return n.add(c)
	case c.command == "DEL":
		return n.del(c)
	}
	return nil
}

func (c call) lease() string { return c.container + "/" + c.ifName }

// device finds a device by name, or by the one PCI address that there is, up0's.
func (c call) device() string {
	if c.config.PCIBusID != "" {
		return "up0"
	}
	return c.config.Device
}

func (n *Node) add(c call) error {
	pod, there := n.pods[c.netns]
	if !there {
		return fmt.Errorf("no namespace %s", c.netns)
	}
	if _, taken := pod[c.ifName]; taken {
		return fmt.Errorf("interface %s: file exists", c.ifName)
	}
	link := cnichain.Link{Name: c.ifName, Index: n.next()}
	if _, bound := n.bound[c.device()]; bound {
		return nil // a function without a link is left where it is
	}
	if c.plugin == "host-device" {
		if _, there := n.host[c.device()]; !there {
			return fmt.Errorf("no device %s", c.device())
		}
		link.Index = n.host[c.device()].Index
		delete(n.host, c.device())
	}
	pod[c.ifName] = link
	if c.config.IPAM != nil {
		n.leases[c.lease()] = true
	}
	return nil
}

// del behaves like the real plugins: host-device fails at a second DEL, and keeps its lease without a namespace.
func (n *Node) del(c call) error {
	link, there := n.pods[c.netns][c.ifName]
	if c.plugin == "host-device" {
		if c.netns == "" {
			return nil
		}
		if !there {
			return errors.New("link not found")
		}
		if !n.lost {
			n.host[c.device()] = cnichain.Link{Name: c.device(), Index: link.Index}
		}
	}
	delete(n.leases, c.lease())
	delete(n.pods[c.netns], c.ifName)
	return nil
}

func (c call) answer() (cnichain.CallOutput, error) {
	switch {
	case c.command == "VERSION":
		return cnichain.CallOutput{Stdout: []byte(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`)}, nil
	case c.command != "ADD":
		return cnichain.CallOutput{}, nil
	case c.plugin == "tuning":
		return cnichain.CallOutput{Stdout: c.config.PrevResult}, nil
	}
	return cnichain.CallOutput{Stdout: fmt.Appendf(nil,
		`{"cniVersion":%q,"interfaces":[{"name":%q,"mac":"02:00:00:00:00:01","sandbox":%q}],"ips":[{"interface":0,"address":"10.0.0.2/24"}]}`,
		c.config.CNIVersion, c.ifName, c.netns)}, nil
}
