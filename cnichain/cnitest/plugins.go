package cnitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// PluginDir is the plugin directory on the node. It contains every plugin.
const PluginDir = "/opt/cni/bin"

// FindInPath always finds the plugin in the first directory.
func (n *Node) FindInPath(plugin string, dirs []string) (string, error) {
	return filepath.Join(append(dirs[:len(dirs):len(dirs)], PluginDir)[0], plugin), nil
}

// Decode parses a plugin's reply to VERSION.
func (n *Node) Decode(data []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(data)
}

// ExecPlugin is like Call, but returns only stdout.
func (n *Node) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	output, err := n.Call(ctx, path, stdin, environ)
	return output.Stdout, err
}

// call is one plugin call.
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

// Persists returns true for every plugin except those declared with [Node.Volatile].
func (n *Node) Persists(path, _ string, _ []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.volatile[filepath.Base(path)]
}

// Call runs a plugin.
func (n *Node) Call(ctx context.Context, path string, stdin []byte, environ []string) (executor.CallOutput, error) {
	env := map[string]string{}
	for _, entry := range environ {
		key, value, _ := strings.Cut(entry, "=")
		env[key] = value
	}
	c := call{plugin: filepath.Base(path), command: env["CNI_COMMAND"], ifName: env["CNI_IFNAME"],
		netns: env["CNI_NETNS"], container: env["CNI_CONTAINERID"]}
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

func failed(c call, err error) (executor.CallOutput, error) {
	return executor.CallOutput{ExitCode: 1}, &executor.ExecError{Plugin: c.plugin, ExitCode: 1, Err: err}
}

// enter records the call and waits while it is held (see [Node.Hold]).
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

// run calls a plugin that may fail before or after taking effect, or report success without having any effect. The
// order matters: a plugin that fails after taking effect leaves changes behind that the executor has to revert.
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

// effect applies a plugin's changes to the node.
func (n *Node) effect(c call) error {
	switch {
	case c.plugin == "device-only":
		return nil
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

// device returns the name of the call's device. A call that specifies a PCI address refers to up0, the only device that
// has one.
func (c call) device() string {
	if c.config.PCIBusID != "" {
		return "up0"
	}
	return c.config.Device
}

// add applies the effect of ADD to links and addresses. Like the real plugins, it returns an error if the namespace
// does not exist, the name is in use or the device is not on the host.
func (n *Node) add(c call) error {
	pod, found := n.pods[c.netns]
	if !found {
		return fmt.Errorf("no namespace %s", c.netns)
	}
	if _, taken := pod[c.ifName]; taken {
		return fmt.Errorf("interface %s: file exists", c.ifName)
	}
	link := cnichain.Link{Name: c.ifName, Index: n.next()}
	if _, bound := n.bound[c.device()]; bound {
		return nil // a function without a link does not move
	}
	if c.plugin == "host-device" {
		if _, found := n.host[c.device()]; !found {
			return fmt.Errorf("no device %s", c.device())
		}
		link.Index = n.host[c.device()].Index
		delete(n.host, c.device())
	}
	pod[c.ifName] = link
	if c.config.IPAM != nil {
		n.leases[c.lease()] = true
	}
	if strings.Contains(string(c.config.IPAM), `"0.0.0.0/0"`) {
		n.defaults[c.netns] = c.ifName
	}
	return nil
}

// del behaves like the real plugins: a second DEL of host-device fails and, without a namespace, its lease is not
// released.
func (n *Node) del(c call) error {
	link, found := n.pods[c.netns][c.ifName]
	if c.plugin == "host-device" {
		if c.netns == "" {
			return nil
		}
		if !found {
			return errors.New("link not found")
		}
		if !n.lost {
			n.host[c.device()] = cnichain.Link{Name: c.device(), Index: link.Index}
		}
	}
	delete(n.leases, c.lease())
	delete(n.pods[c.netns], c.ifName)
	if n.defaults[c.netns] == c.ifName {
		delete(n.defaults, c.netns)
	}
	return nil
}

// answer returns the output of a plugin. "tuning" does not create an interface and prints the result that it was given,
// as the CNI specification (section "Result") requires of chained plugins.
func (c call) answer() (executor.CallOutput, error) {
	switch {
	case c.command == "VERSION":
		return executor.CallOutput{Stdout: []byte(
			`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`,
		)}, nil
	case c.command != "ADD":
		return executor.CallOutput{}, nil
	case c.plugin == "device-only":
		return executor.CallOutput{Stdout: fmt.Appendf(nil, `{"cniVersion":%q}`, c.config.CNIVersion)}, nil
	case c.plugin == "tuning":
		return executor.CallOutput{Stdout: c.config.PrevResult}, nil
	}
	return executor.CallOutput{Stdout: fmt.Appendf(nil,
		`{"cniVersion":%q,"interfaces":[{"name":%q,"mac":"02:00:00:00:00:01","sandbox":%q}],"ips":[{"interface":0,"address":"10.0.0.2/24"}]}`,
		c.config.CNIVersion, c.ifName, c.netns)}, nil
}
