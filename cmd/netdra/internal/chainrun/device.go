package chainrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
)

// DeviceOptions select the links that represent allocated devices. Entries in Devices have the form STEP=LINK or LINK;
// if a step has several entries, they are assigned to the step's instances in order. Shared contains step names. If
// Force is set, links that carry the machine's own traffic are accepted.
type DeviceOptions struct {
	Devices []string
	Shared  []string
	Force   bool
}

// deviceChoice is the value of a --device flag: a link for a root step.
type deviceChoice struct{ step, link string }

// parse parses the flags. The step may be omitted if only one step uses a device.
func (f *DeviceOptions) parse(topology *v1alpha1.NetworkTopology) ([]deviceChoice, error) {
	roots := manifest.RootSteps(topology)
	var problems []error
	var all []deviceChoice
	for _, text := range f.Devices {
		step, link, named := strings.Cut(text, "=")
		if !named {
			step, link = roots[0], text
		}
		switch {
		case link == "":
			problems = append(problems,
				fmt.Errorf("cannot use --device %q: it names no link; write STEP=LINK, for example %s=eth1",
					text, roots[0]))
		case !named && len(roots) > 1:
			problems = append(problems,
				fmt.Errorf("cannot use --device %s: several steps use a device; use STEP=%s with one of %s", text,
					link, strings.Join(roots, ", ")))
		case !slices.Contains(roots, step):
			problems = append(problems,
				fmt.Errorf("cannot use --device %s: topology %s has no root step %q; its root steps are %s", text,
					topology.Name, step, strings.Join(roots, ", ")))
		}
		all = append(all, deviceChoice{step: step, link: link})
	}
	for _, step := range f.Shared {
		if !slices.Contains(roots, step) {
			problems = append(problems,
				fmt.Errorf("cannot use --shared %s: topology %s has no such root step; its root steps are %s",
					step, topology.Name, strings.Join(roots, ", ")))
		}
	}
	return all, errors.Join(problems...)
}

// bindDevices finds the devices on the machine. losses describes devices whose use would disrupt the machine's own
// traffic. A run returns them as an error, whereas a plan, which changes nothing, only reports them. With --force,
// losses is empty.
//
// The rules are stricter than in the driver. The driver only gets devices that an administrator has exposed with a
// policy, whereas here, a user who mistypes the name of a link could cut off the connection to the machine.
func bindDevices(ctx context.Context, m *osdeps.Deps, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas,
	flags *DeviceOptions) (devices []cnichain.RootDevice, losses []error, err error) {
	wanted, err := flags.parse(topology)
	if err != nil {
		return nil, nil, err
	}
	addresses, claims := nodeclient.ReadInUse(ctx)
	facts, err := m.Facts(ctx, addresses)
	if err != nil {
		return nil, nil, err
	}
	hostView, err := m.Inspect("")
	if err != nil {
		return nil, nil, err
	}
	node, err := m.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot determine the name of this machine: %w", err)
	}
	var problems []error
	for _, choice := range wanted {
		found, err := findFacts(&facts, choice.link)
		if err != nil {
			problems = append(problems, fmt.Errorf("--device %s=%s: %w", choice.step, choice.link, err))
			continue
		}
		device := deviceOf(found, node, choice.step, stepType(topology, choice.step))
		// A bridge is always shared: plugins add ports to it, and no plugin can move it, because the kernel does not
		// allow bridges to leave their namespace (br_dev_setup).
		bridge := found.Type == discovery.TypeBridge || found.BridgeType != ""
		device.Exclusive = !slices.Contains(flags.Shared, choice.step) && !bridge
		if slices.Contains(schemas.Moving(), device.CNIs[0]) && bridge {
			problems = append(problems,
				fmt.Errorf("cannot use bridge %s for step %s: plugin %s moves its device to another network "+
					"namespace, which the kernel rejects for bridges; choose another link, or use a plugin that adds "+
					"a port to the bridge", choice.link, choice.step, device.CNIs[0]))
			continue
		}
		loss := cmp.Or(describeHarm(found, &device, hostView), describeHolders(found, &device, claims))
		if loss != "" && !flags.Force {
			losses = append(losses, fmt.Errorf("--device %s=%s: %s; use another link, or set --force", choice.step,
				choice.link, loss))
		}
		devices = append(devices, cnichain.RootDevice{Step: choice.step, Device: device})
	}
	problems = append(problems, refuseTwice(devices)...)
	return devices, losses, errors.Join(problems...)
}

// refuseTwice rejects a link that is used by two steps or instances if either of them uses it exclusively.
func refuseTwice(devices []cnichain.RootDevice) []error {
	var problems []error
	for i := range devices {
		for j := range i {
			a, b := &devices[j], &devices[i]
			if a.Device.Identity() == b.Device.Identity() && (a.Device.Exclusive || b.Device.Exclusive) {
				problems = append(problems,
					fmt.Errorf("--device %s=%s: step %q already uses the link; if the plugins leave it on the machine "+
						"and only use it as a lower device (macvlan, vlan...), set --shared %s",
						b.Step, b.Device.Name, a.Step, b.Step))
			}
		}
	}
	return problems
}

// findFacts finds a device by PCI address, name, or alternative name. PCI addresses take precedence, because no link
// can have such a name. Orphans are network functions whose link name is unknown; they can be found only by PCI
// address.
func findFacts(facts *discovery.Facts, link string) (*discovery.Device, error) {
	if address, err := discovery.ParsePCIAddress(link); err == nil {
		for _, list := range [][]discovery.Device{facts.Devices, facts.Orphans} {
			for i := range list {
				if list[i].PCIAddress == address {
					return &list[i], nil
				}
			}
		}
		return nil, errors.New("this machine has no network function with that PCI address")
	}
	for i := range facts.Devices {
		device := &facts.Devices[i]
		if device.Interface != "" && string(device.Interface) == link || slices.Contains(device.AltNames, link) {
			return device, nil
		}
	}
	var names []string
	for i := range facts.Devices {
		if name := facts.Devices[i].Interface; name != "" {
			names = append(names, string(name))
		}
	}
	return nil, fmt.Errorf("this machine has no such link; it has %s",
		cmp.Or(strings.Join(names, ", "), "only the loopback"))
}

// deviceOf returns the data about an allocated device that the driver would pass to the chain.
func deviceOf(facts *discovery.Device, node, step, cniType string) cnichain.Device {
	return cnichain.Device{
		Pool: node, Name: cmp.Or(string(facts.Name), string(facts.PCIAddress)), Request: step, CNIs: []string{cniType},
		IfName: string(facts.Interface), PCIAddress: string(facts.PCIAddress),
		AuxiliaryDevice: facts.AuxiliaryDevice, PF: string(facts.PFAddress),
		Attributes: attributesOf(facts),
	}
}

// attributesOf returns the attributes that templates can read as {{ device.<attribute> }}, except those added by
// policies.
func attributesOf(facts *discovery.Device) map[string]any {
	attributes := map[string]any{}
	for name, attribute := range policy.PublishedWithAbsent(*facts) {
		key := strings.TrimPrefix(string(name), v1alpha1.DriverName+"/")
		if value := valueOf(attribute); value != nil {
			attributes[key] = value
		}
	}
	return attributes
}

// valueOf returns the value of an attribute for templates; nil for a version, which templates do not support.
func valueOf(attribute resourceapi.DeviceAttribute) any {
	switch {
	case attribute.StringValue != nil:
		return *attribute.StringValue
	case attribute.IntValue != nil:
		return *attribute.IntValue
	case attribute.BoolValue != nil:
		return *attribute.BoolValue
	}
	return nil
}

// describeHarm describes how using the device could disrupt this machine's connectivity, or returns "" if there is no
// known disruption. For example, a user who is logged in over the network could lose the session. The check is not
// exhaustive: an application may use a link without leaving a trace in the link's configuration.
func describeHarm(facts *discovery.Device, device *cnichain.Device, hostView view.View) string {
	if facts.DefaultRoute {
		return "it carries this machine's default route, or is a lower device of the link that does, and a chain may " +
			"disconnect this machine"
	}
	if !device.Exclusive {
		return ""
	}
	if facts.Master != "" {
		return fmt.Sprintf("it is a port of the %s %s, and a plugin that moves it removes it from there permanently",
			facts.MasterKind, facts.Master)
	}
	for i := range hostView.Interfaces {
		if link := &hostView.Interfaces[i]; link.Name == device.IfName && len(link.Addresses) > 0 {
			return fmt.Sprintf("it has the addresses %s, and a plugin that moves it removes them permanently (if the "+
				"plugin leaves it on the machine: --shared %s)", strings.Join(link.Addresses, ", "), device.Request)
		}
	}
	return ""
}

// describeHolders returns text that lists the claims that hold the link and cannot share it with a chain; empty if
// there are none.
func describeHolders(facts *discovery.Device, device *cnichain.Device, claims []nodestate.Claim) string {
	var holders []string
	for i := range claims {
		if slices.ContainsFunc(claims[i].Devices, func(held nodestate.HeldDevice) bool {
			// The driver does not change the device's name while its interface is renamed.
			same := held.Facts.Name == facts.Name ||
				held.Facts.Interface != "" && held.Facts.Interface == facts.Interface
			return same && (device.Exclusive || held.Exclusive)
		}) {
			holders = append(holders, claims[i].Claim.String())
		}
	}
	if len(holders) == 0 {
		return ""
	}
	return fmt.Sprintf("it is allocated to %s, whose pods would lose their network (if the plugin leaves the link on "+
		"the machine, and they share it: --shared %s)", strings.Join(holders, ", "), device.Request)
}

func stepType(topology *v1alpha1.NetworkTopology, name string) string {
	for i := range topology.Spec.Steps {
		if topology.Spec.Steps[i].Name == name {
			return topology.Spec.Steps[i].Type
		}
	}
	return ""
}

// takeBaselines records the current state of devices, which they must have again once they are back on the host. After
// DEL, the executor compares each device with its baseline and reverts any differences
// (docs/adr/0007-owners-and-baselines.md).
func takeBaselines(m *osdeps.Deps, devices []cnichain.RootDevice) error {
	var problems []error
	for i := range devices {
		now, err := m.Host.Snapshot(devices[i].Device)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		devices[i].Device = now
	}
	return errors.Join(problems...)
}

// findNamespace returns the path of a namespace that is specified by path or name. It rejects the host's own namespace,
// because a chain would rename the machine's links there.
func findNamespace(m *osdeps.Deps, given string) (string, error) {
	path := given
	if !strings.Contains(given, "/") {
		path = filepath.Join(m.NetnsDir, given)
	}
	if !m.Host.Exists(path) {
		return "", fmt.Errorf("--netns %s: there is no network namespace at %s; pass a path, or a name that \"ip "+
			"netns list\" shows", given, path)
	}
	if m.IsHostNamespace(path) {
		return "", fmt.Errorf("--netns %s: that is this machine's own network namespace; pass the namespace of "+
			"a pod, or omit --netns", given)
	}
	return path, nil
}
