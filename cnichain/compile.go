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

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// maxCNIVersion is the newest version of the CNI specification that the driver supports.
const maxCNIVersion = "1.1.0"

// Compile compiles a topology and the allocated devices into the plan for one claim. It is pure and reports all
// problems; the path of each problem is a field in the topology. If the claim has no device for a root step, the error
// names the DeviceClass that the claim must request.
//
// It works in three phases. First, it validates the stored topology again, since the API server may have accepted it
// under older rules. Second, it checks the devices and plugins, since everything else depends on them. Finally, it
// compiles each instance and renders the templates as a test, with placeholders for values that are unknown until a pod
// exists.
func Compile(topology *v1alpha1.NetworkTopology, binding Binding) (*Plan, field.ErrorList) {
	if problems := ValidateStored(topology, binding.Schemas); len(problems) > 0 {
		return nil, problems
	}
	c := newCompiler(binding.spec(topology), binding)
	c.problems = append(c.problems, c.spec.CheckDevices()...)
	devices := c.distribute()
	if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return c.external(devices)
	}
	c.checkPlugins()
	c.problems = append(c.problems, c.spec.CheckNames()...)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	plan := &Plan{Topology: topology.Name, Claim: binding.Claim}
	for instance := range c.spec.Instances() {
		plan.Steps = append(plan.Steps, c.instance(instance, len(plan.Steps), devices)...)
	}
	c.dryRun(plan)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return plan, nil
}

// Outline returns the parts of a claim's plan that do not depend on the claim's devices or on the plugins installed on
// the node: the steps, and the names of their interfaces. The spec must be valid. The plan has no steps if other
// components attach the devices.
func Outline(spec claimspec.Spec, claim Claim, schemas Schemas) Plan {
	plan := Plan{Topology: spec.Topology.Name, Claim: claim}
	if spec.Topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return plan
	}
	c := newCompiler(spec, Binding{Claim: claim, Schemas: schemas})
	for instance := range spec.Instances() {
		plan.Steps = append(plan.Steps, c.outline(instance, len(plan.Steps))...)
	}
	return plan
}

// external returns the plan for devices that other components attach. Claims cannot set parameters for the interfaces
// of these devices.
func (c *compiler) external(devices map[string][]RootDevice) (*Plan, field.ErrorList) {
	for instance := range c.spec.Instances() {
		_, refused := c.spec.Parameters(instance)
		c.problems = append(c.problems, refused...)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	plan := &Plan{Topology: c.topology.Name, Claim: c.binding.Claim, Steps: []PlanStep{}}
	for instance := range c.spec.Instances() {
		for i := range c.topology.Spec.Steps {
			step := &c.topology.Spec.Steps[i]
			schema, _ := c.binding.Schemas.Lookup(step.Type)
			plan.External = append(plan.External, PlanStep{Name: step.Name, Instance: instance, Type: step.Type,
				Device: &devices[step.Name][instance].Device, ConflictsWith: schema.ConflictsWith})
		}
	}
	return plan, nil
}

type compiler struct {
	topology *v1alpha1.NetworkTopology
	binding  Binding
	spec     claimspec.Spec
	path     *field.Path
	taken    map[string]int // number of addresses in use, by block
	problems field.ErrorList
}

func newCompiler(spec claimspec.Spec, binding Binding) *compiler {
	return &compiler{topology: spec.Topology, binding: binding, spec: spec, path: field.NewPath("spec", "steps"),
		taken: map[string]int{}}
}

func (c *compiler) add(problem *field.Error) { c.problems = append(c.problems, problem) }

// distribute groups the devices by root step, and checks that each step can attach its devices.
func (c *compiler) distribute() map[string][]RootDevice {
	byStep := map[string][]RootDevice{}
	for _, root := range c.binding.Devices {
		byStep[root.Step] = append(byStep[root.Step], root)
	}
	for i := range c.topology.Spec.Steps {
		if step := &c.topology.Spec.Steps[i]; len(step.DependOn) == 0 {
			c.checkAllowed(c.path.Index(i), step, byStep[step.Name])
		}
	}
	return byStep
}

// defaultNetwork returns the CNI network for a step without a configured network. All instances and claims share this
// network and therefore its address pool. Plugins that modify another plugin's interface are an exception, because they
// identify their results only by network and container, and a pod may have two claims for the same topology.
func defaultNetwork(topology, step string, instance int, makes bool, claim Claim) string {
	if makes {
		return topology + "." + step
	}
	if instance > 0 {
		step = fmt.Sprintf("%s.%d", step, instance)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(claim.UID))
	return fmt.Sprintf("%s.%s.%08x", topology, step, hash.Sum32())
}

func (c *compiler) checkAllowed(path *field.Path, step *v1alpha1.Step, devices []RootDevice) {
	for i := range devices {
		device := &devices[i].Device
		if !slices.Contains(device.CNIs, step.Type) {
			c.add(field.NotSupported(path.Child("type"), step.Type, device.CNIs))
		}
		switch {
		case step.Driver != "" && (device.PCIAddress == "" || device.SharedFunction || !device.Exclusive):
			c.add(field.Invalid(path.Child("driver"), step.Driver, fmt.Sprintf(
				"device %s cannot be bound to a driver: it is not an exclusively allocated PCI function", device.Name)))
		case c.topology.Spec.Attachment == v1alpha1.AttachmentExternal:
		case step.Driver == "" && device.PCIAddress != "" && device.IfName == "" &&
			c.binding.Schemas.AttachesInterface(step.Type):
			c.add(field.Required(path.Child("driver"), fmt.Sprintf(
				"device %s (PCI %s) has no interface, because a userspace driver is bound to it: set driver: "+
					"vfio-pci, or exclude it with the selector", device.Name, device.PCIAddress)))
		}
	}
}

func (c *compiler) checkPlugins() {
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		ipamPath := c.path.Index(i).Child("config", "ipam", "type")
		c.checkPlugin(c.path.Index(i).Child("type"), step.Type)
		c.checkPlugin(ipamPath, IPAMType(rawConfig(step)))
		if versions := c.versions(step); chooseVersion(versions) == "" && len(c.problems) == 0 {
			c.add(field.Invalid(ipamPath, IPAMType(rawConfig(step)), fmt.Sprintf(
				"supports no CNI version that %s supports, too (%v): install other versions of them", step.Type,
				c.binding.Plugins[step.Type].Versions)))
		}
	}
}

// NoSuchPlugin is part of every error message about a CNI plugin or IPAM plugin that is missing on a node.
const NoSuchPlugin = "no such CNI plugin"

// CannotWork is part of every error message about a node whose kernel lacks a feature that a CNI plugin always needs.
const CannotWork = "cannot work on node"

// checkPlugin checks that the plugin is installed on the node and supports one of the driver's CNI versions.
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
		c.add(field.NotFound(path, fmt.Sprintf("%s ("+NoSuchPlugin+" on node %s: %s)", cniType, c.binding.Node,
			help)))
		return
	}
	if missing := c.binding.KernelLacks[cniType]; missing != "" {
		c.add(field.Invalid(path, cniType, fmt.Sprintf(CannotWork+" %s: %s", c.binding.Node, missing)))
	}
	if chooseVersion(plugin.Versions) == "" {
		c.add(field.Invalid(path, cniType, fmt.Sprintf("supports CNI %v, and the driver supports 0.3.0 to %s",
			plugin.Versions, maxCNIVersion)))
	}
}

// versions returns the CNI versions that both a step's plugin and its IPAM plugin support, since both plugins receive
// the same configuration.
func (c *compiler) versions(step *v1alpha1.Step) []string {
	versions := c.binding.Plugins[step.Type].Versions
	ipam := IPAMType(rawConfig(step))
	if ipam == "" {
		return versions
	}
	return slices.DeleteFunc(slices.Clone(versions), func(version string) bool {
		return !slices.Contains(c.binding.Plugins[ipam].Versions, version)
	})
}

// chooseVersion returns the newest version that both the plugin and the driver support, or "" if there is none.
// Versions before 0.3.0 are not supported, because their results do not list interfaces, and without this list the
// driver cannot identify what a plugin created.
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

// instance compiles the steps of one instance; base is the index of its first step in the plan.
func (c *compiler) instance(instance, base int, devices map[string][]RootDevice) []PlanStep {
	steps := c.outline(instance, base)
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		c.giveAddresses(step, &steps[i])
		if len(step.DependOn) == 0 {
			device := devices[step.Name][instance].Device
			device.BindTo, device.KeepsLink = step.Driver, steps[i].NoInterface
			c.giveDevice(&steps[i], &device)
		}
	}
	return steps
}

// outline compiles the parts of an instance's steps that do not depend on devices.
func (c *compiler) outline(instance, base int) []PlanStep {
	index := map[string]int{}
	steps := make([]PlanStep, len(c.topology.Spec.Steps))
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		index[step.Name] = base + i
		steps[i] = c.step(step, instance)
		steps[i].PodNetwork = c.podNetwork(i)
		for _, parent := range step.DependOn {
			steps[i].DependsOn = append(steps[i].DependsOn, index[parent])
		}
	}
	c.applyParameters(instance, steps)
	return steps
}

func (c *compiler) step(step *v1alpha1.Step, instance int) PlanStep {
	plugin := c.binding.Plugins[step.Type]
	schema, known := c.binding.Schemas.Lookup(step.Type)
	network := step.Network
	if step.AddressRange != "" {
		network = rangeNetwork(step.AddressRange)
	}
	if network == "" {
		network = defaultNetwork(c.topology.Name, step.Name, instance, c.binding.Schemas.makesInterface(step.Type),
			c.binding.Claim)
	}
	return PlanStep{
		Name: step.Name, Instance: instance, Type: step.Type,
		Path: plugin.Path, CNIVersion: chooseVersion(c.versions(step)), Network: network,
		IfName: step.WantedInterfaceName(), Makes: c.binding.Schemas.makesInterface(step.Type),
		Moves:       schema.Output.Devices == devicesMove,
		Stays:       known && schema.Output.Devices != devicesMove,
		NoInterface: !c.binding.Schemas.AttachesInterface(step.Type),
		PrevResult:  len(step.DependOn) > 0 && c.binding.Schemas.wantsPrevResult(step),
		Config:      compactConfig(rawConfig(step)), Quirks: schema.Quirks, ConflictsWith: schema.ConflictsWith,
		RDMA: step.RDMA, DeviceNodes: step.DeviceNodes, KeepsDefaultRoute: !step.DefaultRoute,
		Limits:        step.Limits,
		LeavesNoFiles: schema.LeavesNoFiles && c.binding.Schemas.ipamLeavesNoFiles(IPAMType(rawConfig(step))),
	}
}

// podNetwork returns the network that pods must select by annotation for a step, or nil if the step requires none.
func (c *compiler) podNetwork(i int) *PodNetwork {
	step := &c.topology.Spec.Steps[i]
	schema, _ := c.binding.Schemas.Lookup(step.Type)
	network, problem := podNetwork(step, &schema, c.binding.Claim.Namespace)
	if problem != nil {
		problem.Field = c.path.Index(i).Child(problem.Field).String()
		c.add(problem)
	}
	return network
}

// giveDevice sets the parameter that identifies the device to the plugin. The plugin's schema defines which parameter
// this is; without a schema, it is deviceID in the CNI runtime configuration.
func (c *compiler) giveDevice(step *PlanStep, device *Device) {
	step.Device = device
	schema, known := c.binding.Schemas.Lookup(step.Type)
	if !known {
		if device.Exclusive && !device.SharedFunction {
			step.RuntimeDeviceID = cmp.Or(device.PCIAddress, device.AuxiliaryDevice)
		}
		return
	}
	for _, parameter := range schema.DeviceParameters {
		value := map[string]string{attributeIfName: device.IfName, attributePCIAddress: device.PCIAddress,
			attributeAuxiliary: device.AuxiliaryDevice}[parameter.Attribute]
		if value == "" || parameter.OnlyExclusive && !device.Exclusive ||
			parameter.Attribute == attributePCIAddress && device.SharedFunction {
			continue
		}
		step.DeviceParameter, step.DeviceValue = parameter.Parameter, value
		return
	}
}

// dryRun renders the tokens that refer to the device, so that a missing device attribute is detected early. Other
// tokens, such as those that refer to a parent's result, have values only while the chain runs; dryRun replaces these
// tokens with an empty string.
func (c *compiler) dryRun(plan *Plan) {
	engine := template.New()
	for i := range plan.Steps {
		step := &plan.Steps[i]
		resolve := func(t template.Token) (any, error) {
			if t.Root == template.VarDevice {
				return step.Device.AttributeValue(t.Field)
			}
			for j := range plan.Steps {
				root := &plan.Steps[j]
				if t.IsCapacity() && root.Name == t.Root && root.Instance == step.Instance && root.Device != nil {
					return root.Device.AttributeValue(t.Field)
				}
			}
			return "", nil
		}
		// The plan lists the instances one after another, each with all of the topology's steps.
		path := c.path.Index(i % len(c.topology.Spec.Steps))
		if _, err := engine.RenderJSON(step.Config, resolve); err != nil {
			c.add(field.Invalid(path.Child("config"), step.Name, err.Error()))
		}
		if _, err := engine.RenderString(step.IfName, "ifName", resolve); err != nil {
			c.add(field.Invalid(path.Child("ifName"), step.IfName, err.Error()))
		}
	}
}

// compactConfig returns the configuration to render: an empty object if the step has no configuration.
func compactConfig(config json.RawMessage) json.RawMessage {
	if len(config) == 0 {
		return json.RawMessage("{}")
	}
	return config
}
