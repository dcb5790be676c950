package cnichain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// maxCNIVersion is the newest version of the CNI specification that the driver speaks.
const maxCNIVersion = "1.1.0"

// Compile makes the plan of one claim from a topology and the devices that the claim was given. It is pure and reports
// every problem at once; paths are fields of the topology. A problem of the claim (devices missing for a root step) names
// the DeviceClass that the claim must request.
func Compile(topology *v1alpha1.NetworkTopology, binding Binding) (*Plan, field.ErrorList) {
	if problems := ValidateStored(topology, binding.Schemas); len(problems) > 0 {
		return nil, problems
	}
	c := &compiler{topology: topology, binding: binding, path: field.NewPath("spec", "steps")}
	devices, instances := c.distribute()
	c.checkPlugins()
	if instances > 1 {
		c.refuseFixedNames()
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	plan := &Plan{Topology: topology.Name, Claim: binding.Claim}
	for instance := range instances {
		plan.Steps = append(plan.Steps, c.instance(instance, len(plan.Steps), devices)...)
	}
	c.dryRun(plan)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return plan, nil
}

type compiler struct {
	topology *v1alpha1.NetworkTopology
	binding  Binding
	path     *field.Path
	problems field.ErrorList
}

func (c *compiler) add(problem *field.Error) { c.problems = append(c.problems, problem) }

// distribute groups the devices by root step and checks that every root step has the same number of them.
func (c *compiler) distribute() (byStep map[string][]RootDevice, instances int) {
	byStep = map[string][]RootDevice{}
	for _, root := range c.binding.Devices {
		byStep[root.Step] = append(byStep[root.Step], root)
		instances = max(instances, len(byStep[root.Step]))
	}
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		if len(step.DependOn) > 0 {
			continue
		}
		path := c.path.Index(i)
		devices := byStep[step.Name]
		switch problem := RootProblem(c.binding.Claim, c.topology.Name, step.Name, len(devices), instances); {
		case problem != "" && len(devices) == 0:
			c.add(field.Required(path, problem))
		case problem != "":
			c.add(field.Invalid(path, len(devices), problem))
		}
		c.checkAllowed(path, step, devices)
	}
	c.refuseUnknown(byStep)
	return byStep, instances
}

// RootProblem says what is wrong with the number of devices that a claim has for a root step, where it has at most so many
// instances of any; "" if nothing is.
func RootProblem(claim Claim, topology, step string, devices, instances int) string {
	switch devices {
	case 0:
		return fmt.Sprintf("claim %s has no device for root step %q: add a request with deviceClassName %s", claim, step, ClassName(topology, step))
	case instances:
		return ""
	}
	return fmt.Sprintf("claim %s has %d devices for root step %q but %d for another: ask for the same count from every class of topology %s",
		claim, devices, step, instances, topology)
}

// defaultNetwork is the CNI network of a step that names none. Instances and claims share one, and with it addresses;
// but plugins that work on another's interface know what they have made by network and container alone, and a pod may
// have two claims of a topology.
func defaultNetwork(topology, step string, instance int, makes bool, claim Claim) string {
	if makes {
		return topology + "." + step
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(claim.UID))
	return fmt.Sprintf("%s.%08x", sharedNetwork(topology, step, instance, false), hash.Sum32())
}

// sharedNetwork is what earlier drivers took: records have it.
func sharedNetwork(topology, step string, instance int, makes bool) string {
	if instance > 0 && !makes {
		return fmt.Sprintf("%s.%s.%d", topology, step, instance)
	}
	return topology + "." + step
}

// ClassName is the name of the DeviceClass of a root step.
func ClassName(topology, step string) string { return topology + "-" + step }

func (c *compiler) checkAllowed(path *field.Path, step *v1alpha1.Step, devices []RootDevice) {
	for i := range devices {
		device := &devices[i].Device
		if !slices.Contains(device.CNIs, step.Type) {
			c.add(field.NotSupported(path.Child("type"), step.Type, device.CNIs))
		}
		switch {
		case step.Driver != "" && (device.PCIAddress == "" || !device.Exclusive):
			c.add(field.Invalid(path.Child("driver"), step.Driver, fmt.Sprintf(
				"device %s can't be given a driver: it is no PCI function that one claim has for itself", device.Name)))
		case step.Driver == "" && device.PCIAddress != "" && device.IfName == "":
			c.add(field.Required(path.Child("driver"), fmt.Sprintf(
				"device %s (PCI %s) has no interface, since a driver for applications has it: set driver: vfio-pci, or let the selector take others", device.Name, device.PCIAddress)))
		}
	}
}

func (c *compiler) refuseUnknown(byStep map[string][]RootDevice) {
	for _, name := range sortedKeys(byStep) {
		known := slices.ContainsFunc(c.topology.Spec.Steps, func(s v1alpha1.Step) bool { return s.Name == name && len(s.DependOn) == 0 })
		if !known {
			c.add(field.NotFound(c.path, fmt.Sprintf(
				"%s (the topology changed after scheduling: it has no root step of that name any more; delete the pod and its claim)", name)))
		}
	}
}

func (c *compiler) checkPlugins() {
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		ipamPath := c.path.Index(i).Child("config", "ipam", "type")
		c.checkPlugin(c.path.Index(i).Child("type"), step.Type)
		c.checkPlugin(ipamPath, ipamType(rawConfig(step)))
		if versions := c.versions(step); chooseVersion(versions) == "" && len(c.problems) == 0 {
			c.add(field.Invalid(ipamPath, ipamType(rawConfig(step)), fmt.Sprintf(
				"speaks no version of CNI that %s speaks too (%v): install other versions of them", step.Type, c.binding.Plugins[step.Type].Versions)))
		}
	}
}

// checkPlugin checks that the plugin named at a path is on the node and speaks a version of CNI that the driver speaks.
func (c *compiler) checkPlugin(path *field.Path, cniType string) {
	if cniType == "" {
		return
	}
	plugin, found := c.binding.Plugins[cniType]
	if !found {
		help := "install it in " + cmp.Or(strings.Join(c.binding.Dirs, " or "), "the CNI directory")
		if c.binding.DirsHelp != "" {
			help += ", or " + c.binding.DirsHelp
		}
		c.add(field.NotFound(path, fmt.Sprintf("%s (no such CNI plugin on node %s: %s)", cniType, c.binding.Node, help)))
		return
	}
	if chooseVersion(plugin.Versions) == "" {
		c.add(field.Invalid(path, cniType, fmt.Sprintf("speaks CNI %v, the driver speaks 0.3.0 to %s", plugin.Versions, maxCNIVersion)))
	}
}

// versions are those that a step's plugin and its IPAM plugin both speak: it is called with the same configuration.
func (c *compiler) versions(step *v1alpha1.Step) []string {
	versions := c.binding.Plugins[step.Type].Versions
	ipam := ipamType(rawConfig(step))
	if ipam == "" {
		return versions
	}
	return slices.DeleteFunc(slices.Clone(versions), func(version string) bool {
		return !slices.Contains(c.binding.Plugins[ipam].Versions, version)
	})
}

// chooseVersion returns the newest version that plugin and driver speak, "" if there is none.
func chooseVersion(versions []string) string {
	best := ""
	for _, candidate := range versions {
		inRange, err := version.GreaterThanOrEqualTo(maxCNIVersion, candidate)
		if err != nil || !inRange {
			continue
		}
		if newEnough, err := version.GreaterThanOrEqualTo(candidate, "0.3.0"); err != nil || !newEnough {
			continue
		}
		if better, err := version.GreaterThan(candidate, orZero(best)); err == nil && better {
			best = candidate
		}
	}
	return best
}

func orZero(v string) string {
	if v == "" {
		return "0.0.0"
	}
	return v
}

func (c *compiler) refuseFixedNames() {
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		if name := wantedIfName(step); name != "" && !strings.Contains(name, "{{") {
			c.add(field.Invalid(c.path.Index(i).Child("ifName"), name, "a fixed interface name can't be given to several instances: ask for one device per class, or remove the name"))
		}
	}
}

// instance compiles the steps of one instance; base is the index of its first step in the plan.
func (c *compiler) instance(instance, base int, devices map[string][]RootDevice) []PlanStep {
	index := map[string]int{}
	steps := make([]PlanStep, len(c.topology.Spec.Steps))
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		index[step.Name] = base + i
		steps[i] = c.step(step, instance)
		for _, parent := range step.DependOn {
			steps[i].DependsOn = append(steps[i].DependsOn, index[parent])
		}
		if len(step.DependOn) == 0 {
			device := devices[step.Name][instance].Device
			device.BindTo = step.Driver
			c.giveDevice(&steps[i], &device)
		}
	}
	wishes := wishes{compiler: c, steps: steps, granted: map[string]bool{}}
	for _, root := range sortedKeys(devices) {
		for i := range devices[root][instance].Parameters {
			wishes.grant(root, &devices[root][instance].Parameters[i])
		}
	}
	return steps
}

func (c *compiler) step(step *v1alpha1.Step, instance int) PlanStep {
	plugin := c.binding.Plugins[step.Type]
	schema, _ := c.binding.Schemas.Lookup(step.Type)
	network := step.Network
	if network == "" {
		network = defaultNetwork(c.topology.Name, step.Name, instance, c.binding.Schemas.makesInterface(step.Type), c.binding.Claim)
	}
	return PlanStep{
		Name: step.Name, Instance: instance, Type: step.Type,
		Path: plugin.Path, CNIVersion: chooseVersion(c.versions(step)), Network: network,
		IfName: wantedIfName(step), Makes: c.binding.Schemas.makesInterface(step.Type), Moves: schema.Output.Devices == devicesMove,
		PrevResult: len(step.DependOn) > 0 && c.binding.Schemas.wantsPrevResult(step),
		Config:     compactConfig(rawConfig(step)), Quirks: schema.Quirks, ConflictsWith: schema.ConflictsWith,
	}
}

// giveDevice sets the parameter that names the device: as the plugin's schema says; without a schema as the deviceID of
// the CNI runtime configuration.
func (c *compiler) giveDevice(step *PlanStep, device *Device) {
	step.Device = device
	schema, known := c.binding.Schemas.Lookup(step.Type)
	if !known {
		if device.Exclusive {
			step.RuntimeDeviceID = device.PCIAddress
		}
		return
	}
	for _, parameter := range schema.DeviceParameters {
		value := device.PCIAddress
		if parameter.Attribute == attributeIfName {
			value = device.IfName
		}
		if value == "" || parameter.OnlyExclusive && !device.Exclusive {
			continue
		}
		step.DeviceParameter, step.DeviceValue = parameter.Parameter, value
		return
	}
}

// dryRun renders the device's own tokens, so that an attribute that the device does not have is found now.
func (c *compiler) dryRun(plan *Plan) {
	engine := newTemplates()
	for i := range plan.Steps {
		step := &plan.Steps[i]
		resolve := func(t token) (any, error) {
			if t.root == rootDevice {
				return deviceValue(t, step.Device)
			}
			return "", nil
		}
		path := c.path.Index(i % len(c.topology.Spec.Steps))
		if _, err := engine.renderJSON(step.Config, resolve); err != nil {
			c.add(field.Invalid(path.Child("config"), step.Name, err.Error()))
		}
		if _, err := engine.renderString(step.IfName, "ifName", resolve); err != nil {
			c.add(field.Invalid(path.Child("ifName"), step.IfName, err.Error()))
		}
	}
}

func deviceValue(t token, device *Device) (any, error) {
	if device == nil {
		return nil, fmt.Errorf("the step has no device")
	}
	value, known := device.Attributes[t.field]
	if !known {
		return nil, fmt.Errorf("device %s has no attribute %q; it has %s", device.Name, t.field, strings.Join(sortedKeys(device.Attributes), ", "))
	}
	return value, nil
}

func compactConfig(config json.RawMessage) json.RawMessage {
	if len(config) == 0 {
		return json.RawMessage("{}")
	}
	return config
}
