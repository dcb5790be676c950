package cnichain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// fakeNode is a kernel with CNI plugins on it: it holds state, refuses the impossible and prints itself.
type fakeNode struct {
	mu    sync.Mutex
	pins  map[string]bool
	host  map[string]Link // links on the host, by name
	pod   map[string]Link // links in the one pod there is, by name
	ips   map[string]bool // leases
	next  int
	calls []string
	// fail makes a plugin fail: "macvlan ADD" before it does anything, "macvlan ADD after" after its effect.
	fail map[string]error
	// lies makes a plugin report success without an effect.
	lies map[string]bool
	// home makes host-device forget to bring a device back.
	lost bool
}

func newFakeNode(hostLinks ...string) *fakeNode {
	node := &fakeNode{pins: map[string]bool{}, host: map[string]Link{}, pod: map[string]Link{}, ips: map[string]bool{}, fail: map[string]error{}, lies: map[string]bool{}, next: 10}
	for _, name := range hostLinks {
		node.host[name] = Link{Name: name, Index: node.index()}
	}
	node.pod["eth0"] = Link{Name: "eth0", Index: node.index()}
	return node
}

func (n *fakeNode) index() int { n.next++; return n.next }

// String shows everything that a chain must not leave behind.
func (n *fakeNode) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("host %v pod %v leases %v pins %v", sortedKeys(n.host), sortedKeys(n.pod), sortedKeys(n.ips), sortedKeys(n.pins))
}

func (n *fakeNode) Pin(_, pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pins[pin] = true
	return nil
}

func (n *fakeNode) Unpin(pin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pins, pin)
	return nil
}

func (n *fakeNode) Exists(pin string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pins[pin]
}

func (n *fakeNode) Links(string) ([]Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var links []Link
	for _, name := range sortedKeys(n.pod) {
		links = append(links, n.pod[name])
	}
	return links, nil
}

func (n *fakeNode) Restore(device Device) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, home := n.host[device.IfName]; !home {
		return fmt.Errorf("device %s: the host has no link %s: %w", device.Name, device.IfName, os.ErrNotExist)
	}
	return nil
}

func (n *fakeNode) FindInPath(plugin string, _ []string) (string, error) {
	return "/opt/cni/bin/" + plugin, nil
}

func (n *fakeNode) Decode(data []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(data)
}

func (n *fakeNode) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	output, err := n.Call(ctx, path, stdin, environ)
	return output.Stdout, err
}

// Call is every plugin.
func (n *fakeNode) Call(_ context.Context, path string, stdin []byte, environ []string) (CallOutput, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	env := map[string]string{}
	for _, entry := range environ {
		key, value, _ := strings.Cut(entry, "=")
		env[key] = value
	}
	plugin := path[strings.LastIndex(path, "/")+1:]
	command, ifName := env["CNI_COMMAND"], env["CNI_IFNAME"]
	n.calls = append(n.calls, plugin+" "+command+" "+ifName)
	var config struct {
		Device     string          `json:"device"`
		PCIBusID   string          `json:"pciBusID"`
		CNIVersion string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
		IPAM       json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &config); err != nil {
		return CallOutput{}, err
	}
	if err := n.fail[plugin+" "+command]; err != nil {
		return CallOutput{ExitCode: 1}, &ExecError{Plugin: plugin, ExitCode: 1, Err: err}
	}
	if !n.lies[plugin] {
		if err := n.effect(plugin, command, ifName, n.deviceName(config.Device, config.PCIBusID), config.IPAM != nil, env["CNI_NETNS"]); err != nil {
			return CallOutput{ExitCode: 1}, &ExecError{Plugin: plugin, ExitCode: 1, Err: err}
		}
	}
	if err := n.fail[plugin+" "+command+" after"]; err != nil {
		return CallOutput{ExitCode: 1}, &ExecError{Plugin: plugin, ExitCode: 1, Err: err}
	}
	if command != "ADD" {
		return CallOutput{}, nil
	}
	if plugin == "tuning" {
		if config.PrevResult == nil {
			return CallOutput{ExitCode: 1}, &ExecError{Plugin: plugin, Err: errors.New("required prevResult missing")}
		}
		return CallOutput{Stdout: config.PrevResult}, nil
	}
	result := fmt.Sprintf(`{"cniVersion":%q,"interfaces":[{"name":%q,"mac":"02:00:00:00:00:01","sandbox":%q}],"ips":[{"interface":0,"address":"10.0.0.2/24"}]}`, config.CNIVersion, ifName, env["CNI_NETNS"])
	return CallOutput{Stdout: []byte(result)}, nil
}

// deviceName finds a device by name, or by the one PCI address that there is, up0's.
func (n *fakeNode) deviceName(name, pci string) string {
	if pci != "" {
		return "up0"
	}
	return name
}

func (n *fakeNode) effect(plugin, command, ifName, device string, ipam bool, netns string) error {
	if plugin == "tuning" {
		return nil
	}
	if plugin == "host-local" {
		delete(n.ips, ifName)
		return nil
	}
	if command == "ADD" {
		if _, taken := n.pod[ifName]; taken {
			return fmt.Errorf("interface %s: file exists", ifName)
		}
		if plugin == "host-device" {
			if _, there := n.host[device]; !there {
				return fmt.Errorf("no device %s", device)
			}
			delete(n.host, device)
		}
		n.pod[ifName] = Link{Name: ifName, AltNames: []string{device}, Index: n.index()}
		if ipam {
			n.ips[ifName] = true
		}
		return nil
	}
	link, there := n.pod[ifName]
	if plugin == "host-device" {
		if !there && netns != "" {
			return errors.New("Link not found")
		}
		if there && !n.lost {
			n.host[link.AltNames[0]] = Link{Name: link.AltNames[0], Index: link.Index}
		}
	}
	if netns != "" || plugin != "host-device" {
		delete(n.ips, ifName)
	}
	delete(n.pod, ifName)
	return nil
}

// fakeJournal keeps the last form of every record as it would be read back, counts commits and can be full.
type fakeJournal struct {
	records map[string][]byte
	commits int
	full    bool
}

func (j *fakeJournal) Save(attachment *Attachment) error {
	if j.full {
		return errors.New("cannot write to the journal: no space left on device")
	}
	j.commits++
	if j.records == nil {
		j.records = map[string][]byte{}
	}
	data, err := json.Marshal(attachment)
	j.records[attachment.SandboxID] = data
	return err
}

func (j *fakeJournal) Delete(id string) error {
	if j.full {
		return errors.New("cannot write to the journal: no space left on device")
	}
	j.commits++
	delete(j.records, id)
	return nil
}

// load reads a record back, as after a restart.
func (j *fakeJournal) load(id string) *Attachment {
	data, there := j.records[id]
	if !there {
		return nil
	}
	attachment := &Attachment{}
	if err := json.Unmarshal(data, attachment); err != nil {
		panic(err)
	}
	return attachment
}

func cniError(text string) error { return &types.Error{Code: 100, Msg: text} }

func plugins(names ...string) map[string]Plugin {
	found := map[string]Plugin{}
	for _, name := range names {
		found[name] = Plugin{Path: "/opt/cni/bin/" + name, Versions: []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}}
	}
	return found
}

func contains(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
