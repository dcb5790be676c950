package cnichain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// CheckContracts reports violations of plugin contracts in a topology: incorrect parameters, an incorrect number of
// input interfaces, and plugins that cannot share an interface. It skips steps whose plugin has no schema, and problems
// that [ValidateStored] reports.
func CheckContracts(topology *v1alpha1.NetworkTopology, schemas Schemas) field.ErrorList {
	c := &contracts{schemas: schemas, templates: template.New(), steps: map[string]*v1alpha1.Step{},
		made: map[string][]string{}, unordered: map[string]bool{}}
	c.extendedResources(topology.Spec.Steps)
	var worked []work
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		path := field.NewPath("spec", "steps").Index(i)
		c.place(path, step)
		if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
			continue // the component that attaches the device configures the rest
		}
		interfaces := c.input(step)
		c.config(path, step, interfaces)
		c.podNetwork(path, step)
		if c.unordered[step.Name] = c.isUnordered(step); !c.unordered[step.Name] {
			c.count(path, step, interfaces)
			here := work{step: step, interfaces: interfaces}
			c.conflicts(path, here, worked)
			worked = append(worked, here)
		}
		c.steps[step.Name], c.made[step.Name] = step, c.output(step, interfaces)
	}
	return c.problems
}

type contracts struct {
	schemas   Schemas
	templates template.Engine
	steps     map[string]*v1alpha1.Step // steps before the current one, by name
	made      map[string][]string       // the steps that create the interfaces that a step passes on
	unordered map[string]bool           // steps whose interfaces are unpredictable, by name; see isUnordered
	problems  field.ErrorList
}

// work is a step and its input interfaces.
type work struct {
	step       *v1alpha1.Step
	interfaces []string
}

func (c *contracts) add(problem *field.Error) { c.problems = append(c.problems, problem) }

// input returns the steps that create a step's input interfaces.
func (c *contracts) input(step *v1alpha1.Step) []string {
	var interfaces []string
	for _, parent := range step.DependOn {
		for _, made := range c.made[parent] {
			if !slices.Contains(interfaces, made) {
				interfaces = append(interfaces, made)
			}
		}
	}
	return interfaces
}

// isUnordered reports whether a step depends, directly or indirectly, on a later step, on a missing step, or on itself.
// This is reported as a separate problem. Until it is fixed, the step's interfaces are unknown.
func (c *contracts) isUnordered(step *v1alpha1.Step) bool {
	return slices.ContainsFunc(step.DependOn, func(parent string) bool {
		return c.steps[parent] == nil || c.unordered[parent]
	})
}

// output returns the interfaces that a step passes on: its own interface if it creates one, and otherwise its input
// interfaces. A root step that creates no interface is rejected, but is treated here as if it created one, so that it
// does not cause further errors for later steps.
func (c *contracts) output(step *v1alpha1.Step, interfaces []string) []string {
	switch {
	case !c.schemas.AttachesInterface(step.Type):
		return nil
	case c.schemas.makesInterface(step.Type), len(step.DependOn) == 0:
		return []string{step.Name}
	}
	return interfaces
}

// extendedResources rejects extended resource names if a step requires parameters from a claim, because a pod that
// requests an extended resource has no claim of its own that could set them.
func (c *contracts) extendedResources(steps []v1alpha1.Step) {
	needy := slices.IndexFunc(steps, func(step v1alpha1.Step) bool { return claimspec.NeedsIPs(&step) })
	if needy < 0 {
		return
	}
	for i := range steps {
		if steps[i].ExtendedResourceName != "" {
			c.add(field.Forbidden(field.NewPath("spec", "steps").Index(i).Child("extendedResourceName"), fmt.Sprintf(
				"step %q gets addresses from claims only, and a pod that requests an extended resource has no claim "+
					"that could set them: name addresses in its config.ipam, or remove extendedResourceName",
				steps[needy].Name)))
		}
	}
}

// place checks whether a plugin can be used as a step at all, and whether the step is allowed to have parents.
func (c *contracts) place(path *field.Path, step *v1alpha1.Step) {
	schema, _ := c.schemas.Lookup(step.Type)
	if schema.Output.Interfaces == interfacesNone {
		c.add(field.Invalid(path.Child("type"), step.Type, "is an IPAM plugin, which other plugins call: name it in "+
			"config.ipam.type of the step that makes the interface"))
	}
	if !c.schemas.AttachesInterface(step.Type) {
		c.withoutInterface(path, step)
	}
	if schema.Output.Devices == devicesMove && len(step.DependOn) > 0 {
		c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf(
			"%s takes a device of the node, which only root steps get: remove dependOn and select the device "+
				"with selector.cel", step.Type)))
	}
}

// withoutInterface checks a step that attaches no interface. Without device files, such a step would provide nothing to
// pods.
func (c *contracts) withoutInterface(path *field.Path, step *v1alpha1.Step) {
	if len(step.DependOn) > 0 {
		c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf(
			"%s attaches no interface, so it has no use for those of other steps: select a device with selector.cel, and "+
				"remove dependOn", step.Type)))
	}
	if step.RDMA == nil && len(step.DeviceNodes) == 0 {
		c.add(field.Required(path.Child("rdma"), fmt.Sprintf(
			"%s attaches no interface, so containers would get nothing: set rdma or deviceNodes", step.Type)))
	}
	if step.Driver != "" {
		c.add(field.Forbidden(path.Child("driver"), fmt.Sprintf("%s leaves the device on the host: remove driver",
			step.Type)))
	}
	if name := step.WantedInterfaceName(); name != "" {
		c.add(field.Invalid(path.Child("ifName"), name, step.Type+" attaches no interface: remove ifName"))
	}
}

// count compares the number of a step's input interfaces with the number that its plugin requires.
func (c *contracts) count(path *field.Path, step *v1alpha1.Step, interfaces []string) {
	schema, _ := c.schemas.Lookup(step.Type)
	wanted := schema.Input.Interfaces
	if len(step.DependOn) == 0 && schema.Input.PrevResult == prevResultRequired {
		return // a missing parent is reported separately
	}
	have := fmt.Sprintf("and the steps in dependOn make %d", len(interfaces))
	if len(interfaces) > 0 {
		have += " (" + strings.Join(interfaces, ", ") + ")"
	}
	if wanted.Min != nil && len(interfaces) < int(*wanted.Min) {
		c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf(
			"%s works on %s or more, %s: add the steps that make the others", step.Type, countInterfaces(*wanted.Min),
			have)))
	}
	if wanted.Max != nil && len(interfaces) > int(*wanted.Max) {
		c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf(
			"%s works on %s at most, %s: name fewer steps", step.Type, countInterfaces(*wanted.Max), have)))
	}
}

func countInterfaces(n int32) string {
	if n == 1 {
		return "1 interface"
	}
	return fmt.Sprintf("%d interfaces", n)
}

// conflicts reports an earlier step that modifies the same interface through a plugin that conflicts with this step's
// plugin. It skips steps with several interfaces, since the plugin decides which of them to use.
func (c *contracts) conflicts(path *field.Path, here work, before []work) {
	if len(here.interfaces) != 1 {
		return
	}
	for _, earlier := range before {
		if slices.Equal(earlier.interfaces, here.interfaces) && c.conflict(here.step.Type, earlier.step.Type) {
			c.add(field.Invalid(path.Child("type"), here.step.Type, fmt.Sprintf(
				"can't work on the interface of step %q, on which step %q runs %s: give one of them another interface",
				here.interfaces[0], earlier.step.Name, earlier.step.Type)))
		}
	}
}

func (c *contracts) conflict(first, second string) bool {
	schema, _ := c.schemas.Lookup(first)
	reverse, _ := c.schemas.Lookup(second)
	return slices.Contains(schema.ConflictsWith, second) || slices.Contains(reverse.ConflictsWith, first)
}

// config checks a step's configuration against the schemas for the step's plugin and IPAM plugin. interfaces are the
// names of the steps that create the interfaces of the step's parents.
func (c *contracts) config(stepPath *field.Path, step *v1alpha1.Step, interfaces []string) {
	path := stepPath.Child("config")
	decoded, err := template.DecodeJSON(rawConfig(step))
	if err != nil {
		return
	}
	config, isObject := decoded.(map[string]any)
	if !isObject {
		return
	}
	for reserved := range reservedKeys() { // reserved keys are rejected separately
		delete(config, reserved)
	}
	c.templateRoots(path, config)
	checker := &parameters{templates: c.templates, add: c.add}
	schema, known := c.schemas.Lookup(step.Type)
	if known && schema.Config != nil && schema.Output.Interfaces != interfacesNone { // a step cannot be an IPAM plugin
		checker.given = append(driversParameters(step, &schema), definedParameters(&schema)...)
		checker.remedies = linkParameters(step, &schema, config)
		checker.object(path, config, withCommon(schema.Config, commonParameters()), step.Type)
	}
	if known {
		c.refusals(step, stepPath, config, interfaces)
	}
	if ipam, isObject := config["ipam"].(map[string]any); isObject {
		c.ipam(path.Child("ipam"), step, ipam, checker)
		if hasIPAM(&schema) {
			c.assigned(step, path, config, ipam)
		}
	}
}

// podNetwork checks the network name and the interface name in a step whose plugin requires pods to select networks by
// annotation.
func (c *contracts) podNetwork(path *field.Path, step *v1alpha1.Step) {
	schema, _ := c.schemas.Lookup(step.Type)
	if schema.PodNetworks == nil {
		return
	}
	if _, problem := podNetwork(step, &schema, "namespace"); problem != nil {
		problem.Field = path.Child(problem.Field).String()
		c.add(problem)
	}
	if name := step.WantedInterfaceName(); schema.PodNetworks.InterfaceNames == namesSelected &&
		template.Contains(name) {
		c.add(field.Invalid(path.Child("ifName"), name, fmt.Sprintf("%s accepts only the name in the pod's annotation "+
			"%s: remove ifName", step.Type, schema.PodNetworks.Annotation)))
	}
}

// ipam checks the IPAM section against its plugin's schema. As with steps, unknown plugins are accepted, because the
// project cannot provide schemas for all plugins.
func (c *contracts) ipam(path *field.Path, step *v1alpha1.Step, ipam map[string]any, checker *parameters) {
	cniType, _ := ipam["type"].(string)
	schema, known := c.schemas.Lookup(cniType)
	switch {
	case cniType == "" && len(ipam) > 0:
		c.add(field.Required(path.Child("type"), "name the IPAM plugin that assigns the addresses, for example "+
			"host-local"))
	case !known:
	case schema.Output.Interfaces != interfacesNone:
		c.add(field.NotSupported(path.Child("type"), cniType, c.schemas.ipams()))
	case schema.Config != nil:
		checker.given, checker.remedies = nil, nil
		if form := schema.AddressBlocks; form != nil {
			ipam = withoutEmptyList(ipam, form.Parameter)
			checker.given, checker.remedies = givenRanges(step, ipam, &schema), rangesRemedy(&schema)
			if step.AddressRange == "" { // address runs are not allowed together with addressRange
				c.addressRuns(path, cniType, ipam, form)
			}
		}
		checker.object(path, ipam, withCommon(schema.Config,
			map[string]v1alpha1.Parameter{"type": {Type: v1alpha1.TypeString}}), cniType)
	}
}

// ipams returns the sorted types of the IPAM plugins that have a schema.
func (s Schemas) ipams() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.byType)), func(cniType string) bool {
		return s.byType[cniType].Output.Interfaces != interfacesNone
	})
}

// templateRoots rejects templates that use the PCI address of a step without a device.
func (c *contracts) templateRoots(path *field.Path, config map[string]any) {
	_, _ = c.templates.Render(config, "config", func(t template.Token) (any, error) {
		ofDevice := t.Field == template.FieldPCIAddress || t.IsCapacity()
		if step := c.steps[t.Root]; step != nil && len(step.DependOn) > 0 && ofDevice {
			c.add(field.Invalid(path, "{{ "+t.String()+" }}", fmt.Sprintf("step %q takes no device: name a root step",
				t.Root)))
		}
		return "", nil
	})
}

// driversParameters returns the parameters that the driver may set for a step. The configuration may omit them.
func driversParameters(step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) []string {
	var names []string
	for _, parameter := range schema.DeviceParameters {
		if len(step.DependOn) == 0 {
			names = append(names, parameter.Parameter)
		}
	}
	return names
}

// linkParameters returns, by parameter, the suggested fix for a step whose lower device is not named. If the lower
// device is an allocated device, the driver sets its name. If it is another step's interface, the author must set the
// name and declare that the interface is in the pod.
func linkParameters(
	step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec, config map[string]any,
) map[string]string {
	if len(step.DependOn) == 0 {
		return nil
	}
	remedies := map[string]string{}
	for _, parameter := range schema.DeviceParameters {
		if parameter.Attribute != attributeIfName {
			continue
		}
		remedy := fmt.Sprintf(`write "{{ %s.interfaceName }}"`, step.DependOn[0])
		for _, inPod := range inPodParameters() {
			if _, takes := schema.Config.Properties[inPod]; takes && config[inPod] != true {
				remedy += fmt.Sprintf(" and %s: true", inPod)
			}
		}
		remedies[parameter.Parameter] = remedy
	}
	return remedies
}

// definedParameters returns the parameters that a NetworkAttachmentDefinition may set.
func definedParameters(schema *v1alpha1.CNIPluginSchemaSpec) []string {
	if schema.PodNetworks == nil {
		return nil
	}
	return schema.PodNetworks.Defined
}

// commonParameters returns the parameters that every plugin accepts: those in the CNI specification and conventions,
// and the shorthands that topologies can use to name a derived step's interface.
func commonParameters() map[string]v1alpha1.Parameter {
	text := v1alpha1.Parameter{Type: v1alpha1.TypeString}
	texts := v1alpha1.Parameter{Type: v1alpha1.TypeArray, Items: &text}
	return map[string]v1alpha1.Parameter{
		"name": text, "dev": text,
		"args": {Type: v1alpha1.TypeObject}, "runtimeConfig": {Type: v1alpha1.TypeObject},
		"capabilities": {Type: v1alpha1.TypeObject,
			AdditionalProperties: &v1alpha1.Parameter{Type: v1alpha1.TypeBoolean}},
		"dns": {Type: v1alpha1.TypeObject, Properties: map[string]v1alpha1.Parameter{
			"domain": text, "nameservers": texts, "search": texts, "options": texts,
		}},
	}
}

// withCommon adds common parameters to a plugin's own parameters, which take precedence.
func withCommon(config *v1alpha1.PluginConfig, common map[string]v1alpha1.Parameter) *v1alpha1.Parameter {
	maps.Copy(common, config.Properties)
	return &v1alpha1.Parameter{Type: v1alpha1.TypeObject, Properties: common, Required: config.Required}
}
