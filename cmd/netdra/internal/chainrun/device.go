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

// DeviceOptions select the links that stand for allocated devices. Devices are STEP=LINK or LINK, in the order of
// instances; Shared are names of steps; Force takes links that carry the machine's own traffic.
type DeviceOptions struct {
	Devices []string
	Shared  []string
	Force   bool
}

// deviceChoice is one --device: a link for a root step.
type deviceChoice struct{ step, link string }

// parse reads the flags; the step may be left out when there is only one that takes a device. It returns every problem.
// A topology that was loaded has a root step, so roots is never empty.
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
			example := roots[0]
			if slices.Contains(roots, step) {
				example = step
			}
			problems = append(problems,
				fmt.Errorf("cannot use --device %q: it names no link; write STEP=LINK, for example %s=eth1",
					text, example))
		case !named && len(roots) > 1:
			problems = append(problems,
				fmt.Errorf("--device %s: say for which step, since several take a device: STEP=%s with one of %s", text,
					link, strings.Join(roots, ", ")))
		case !slices.Contains(roots, step):
			problems = append(problems,
				fmt.Errorf("--device %s: topology %s has no root step %q: those that take a device are %s", text,
					topology.Name, step, strings.Join(roots, ", ")))
		}
		all = append(all, deviceChoice{step: step, link: link})
	}
	for _, step := range f.Shared {
		if !slices.Contains(roots, step) {
			problems = append(problems,
				fmt.Errorf("--shared %s: topology %s has no root step of that name: those that take a device are %s",
					step, topology.Name, strings.Join(roots, ", ")))
		}
	}
	return all, errors.Join(problems...)
}

// bindDevices finds the devices on the machine. losses are those that a chain would take from the machine's own
// traffic: a run refuses them, and a plan, which changes nothing, only says so. With --force there are none.
//
// The rules are stricter than the driver's: there, an administrator has offered the device by a policy, while here
// somebody may have mistyped a name on a machine that is reached by that very link.
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
		return nil, nil, fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	var problems []error
	for _, choice := range wanted {
		found, err := findFacts(&facts, choice.link)
		if err != nil {
			problems = append(problems, fmt.Errorf("--device %s=%s: %w", choice.step, choice.link, err))
			continue
		}
		device := deviceOf(found, node, choice.step, stepType(topology, choice.step))
		// A bridge is shared whatever the flags say: plugins add ports to it, and no plugin can move it, since the
		// kernel keeps bridges in their namespace (br_dev_setup).
		bridge := found.Type == discovery.TypeBridge || found.BridgeType != ""
		device.Exclusive = !slices.Contains(flags.Shared, choice.step) && !bridge
		if movesDevices(schemas, device.CNIs[0]) && bridge {
			problems = append(problems,
				fmt.Errorf("cannot use bridge %s for step %s: plugin %s moves its device to another network "+
					"namespace, "+
					"which the kernel refuses for bridges; give another link, or use a plugin that adds a port to "+
					"the bridge",
					choice.link, choice.step, device.CNIs[0]))
			continue
		}
		loss := cmp.Or(describeHarm(found, &device, hostView), describeHolders(found, &device, claims))
		if loss != "" && !flags.Force {
			losses = append(losses, fmt.Errorf("--device %s=%s: %s; give another link, or say --force", choice.step,
				choice.link, loss))
		}
		devices = append(devices, cnichain.RootDevice{Step: choice.step, Device: device})
	}
	problems = append(problems, refuseTwice(devices)...)
	return devices, losses, errors.Join(problems...)
}

func movesDevices(schemas cnichain.Schemas, cniType string) bool {
	return slices.Contains(schemas.Moving(), cniType)
}

// refuseTwice refuses a link for two instances or steps if one of them owns it: the second would not find it.
func refuseTwice(devices []cnichain.RootDevice) []error {
	var problems []error
	for i := range devices {
		for j := range i {
			a, b := &devices[j], &devices[i]
			if a.Device.Identity() == b.Device.Identity() && (a.Device.Exclusive || b.Device.Exclusive) {
				problems = append(problems,
					fmt.Errorf("--device %s=%s: the link is given to step %q already; where the plugins leave it on "+
						"the machine and only stand on it (macvlan, vlan...), say so with --shared %s",
						b.Step, b.Device.Name, a.Step, b.Step))
			}
		}
	}
	return problems
}

// findFacts finds a device by PCI address, name, or alternative name. PCI addresses come first: no link can have such a
// name. Orphans are functions whose names are not known; they can be named by their address only.
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
		cmp.Or(strings.Join(names, ", "), "none but the loopback"))
}

// deviceOf returns what the driver would pass to the chain for an allocated device.
func deviceOf(facts *discovery.Device, node, step, cniType string) cnichain.Device {
	name := string(facts.Name)
	if name == "" {
		name = string(facts.PCIAddress)
	}
	return cnichain.Device{
		Pool: node, Name: name, Request: step, CNIs: []string{cniType},
		IfName: string(facts.Interface), PCIAddress: string(facts.PCIAddress), PF: string(facts.PFAddress),
		Attributes: attributesOf(facts),
	}
}

// attributesOf are the attributes for {{ device.<attribute> }}, without a policy's: those of the driver's domain by
// their bare names, as the driver gives them to templates.
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

// valueOf is the value of an attribute as templates take it. A version is none of these, and not a value of a template.
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

// describeHarm describes the connectivity that this machine would lose; empty if none is known. A user who is logged in
// over the network would lose the session. It is a warning of what is easily overlooked and no proof: an application
// may use a link in ways that leave no trace in its configuration.
func describeHarm(facts *discovery.Device, device *cnichain.Device, hostView view.View) string {
	if facts.DefaultRoute {
		return "it carries this machine's default route, or stands below the link that does, and a chain may cut " +
			"this machine off"
	}
	if !device.Exclusive {
		return ""
	}
	if facts.Master != "" {
		return fmt.Sprintf("it is a port of the %s %s, and a plugin that moves it takes it out of there for good",
			facts.MasterKind, facts.Master)
	}
	for i := range hostView.Interfaces {
		if link := &hostView.Interfaces[i]; link.Name == device.IfName && len(link.Addresses) > 0 {
			return fmt.Sprintf("it has the addresses %s, and a plugin that moves it takes them off for good (if the "+
				"plugin leaves it on the machine: --shared %s)",
				strings.Join(link.Addresses, ", "), device.Request)
		}
	}
	return ""
}

// describeHolders names the claims that the link is allocated to, where they and a chain can't have it both; empty if
// there are none.
func describeHolders(facts *discovery.Device, device *cnichain.Device, claims []nodestate.Claim) string {
	var holders []string
	for i := range claims {
		if slices.ContainsFunc(claims[i].Devices, func(held nodestate.HeldDevice) bool {
			// Names of devices are those of the driver, which remembers them while an interface is renamed.
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
	const most = 3
	more := ""
	if len(holders) > most {
		more = fmt.Sprintf(" and %d more", len(holders)-most)
		holders = holders[:most]
	}
	return fmt.Sprintf("it is allocated to %s%s, whose pods would lose their network (if the plugin leaves the link "+
		"on the machine, and they share it: --shared %s)", strings.Join(holders, ", "), more, device.Request)
}

func stepType(topology *v1alpha1.NetworkTopology, name string) string {
	for i := range topology.Spec.Steps {
		if topology.Spec.Steps[i].Name == name {
			return topology.Spec.Steps[i].Type
		}
	}
	return ""
}

// takeBaselines records the state of the devices. A device must have it again when it is back on the host. The executor
// compares with it after DEL, and restores what differs (docs/adr/0007-owners-and-baselines.md).
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

// findNamespace returns the path of a namespace that is given by path or by name. The host's own namespace is refused:
// a chain there would rename the machine's links.
func findNamespace(m *osdeps.Deps, given string) (string, error) {
	path := given
	if !strings.Contains(given, "/") {
		path = filepath.Join(m.NetnsDir, given)
	}
	if !m.Host.Exists(path) {
		return "", fmt.Errorf("--netns %s: there is no network namespace at %s; give a path, or a name that \"ip "+
			"netns list\" shows", given, path)
	}
	if m.IsHostNamespace(path) {
		return "", fmt.Errorf("--netns %s: that is this machine's own network namespace; give one that stands for a "+
			"pod, or leave --netns out", given)
	}
	return path, nil
}
