package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const driverVFIO = cnichain.DriverVFIO

// Values used in schemas.
const (
	requiresResult = "required"
	movesDevice    = "moves"
	byName         = "ifName"
	deviceFiles    = "deviceFiles"
)

// translate creates the topology for a network. If this is impossible, it adds a finding instead. The first plugin must
// be translatable. If a later plugin is not, it is omitted with a finding, and the network works without the effect of
// that plugin.
func (m *importer) translate(n *network) {
	defer func() {
		if n.topology == nil && n.derived == nil {
			for _, plugin := range n.plugins {
				plugin.forget()
			}
		}
	}()
	if len(n.plugins) == 0 {
		n.add(true, "", nil, "has no plugins, so it was not translated: fix it")
		return
	}
	m.withoutShared(n)
	n.requested = n.resource
	m.preferLink(n)
	for _, p := range m.pools {
		if n.resource != "" && p.resource == n.resource {
			n.pools = append(n.pools, p)
		}
	}
	topology := m.newTopology(n)
	plugins := n.plugins
	if m.options.KeepMultus && !n.ofPool {
		step := m.reserve(n, topology)
		if step == nil {
			return
		}
		topology.Spec.Steps, plugins = []v1alpha1.Step{*step}, nil
	}
	for i, plugin := range plugins {
		step := m.step(n, plugin, topology.Spec.Steps)
		if step == nil && i == 0 {
			return
		}
		if step != nil {
			topology.Spec.Steps = append(topology.Spec.Steps, *step)
		}
	}
	switch {
	case n.refused:
	case len(n.links) > 0:
		n.derived = topology.Spec.Steps
	default:
		n.keepClaims(topology)
		m.dropRefused(n, topology)
		m.finish(n, topology)
	}
}

// dropRefused omits later plugins that always fail on this interface, even with Multus.
func (m *importer) dropRefused(n *network, topology *v1alpha1.NetworkTopology) {
	problems, steps := cnichain.Validate(topology, m.options.Schemas), topology.Spec.Steps
	for i := len(steps) - 1; i > 0; i-- {
		j := slices.IndexFunc(problems, func(problem *field.Error) bool {
			return problem.Field == fmt.Sprintf("spec.steps[%d].dependOn", i)
		})
		if j < 0 {
			continue
		}
		n.add(true, "", nil, "%s was left out, because it always fails on this interface, with Multus as well: %v",
			steps[i].Type, problems[j])
		if i+1 < len(steps) {
			steps[i+1].DependOn = steps[i].DependOn
		}
		steps = slices.Delete(steps, i, i+1)
	}
	topology.Spec.Steps = steps
}

// newTopology returns a topology without steps for the namespaces that use a network.
func (m *importer) newTopology(n *network) *v1alpha1.NetworkTopology {
	topology := &v1alpha1.NetworkTopology{Spec: v1alpha1.NetworkTopologySpec{
		AllowedNamespaces: namespacesOf(m.users(n)),
	}}
	topology.APIVersion, topology.Kind = v1alpha1.GroupVersion().String(), manifest.KindTopology
	return topology
}

// finish names a topology and assigns it to a network. Except for its name, the topology must be complete. If the
// topology is invalid, finish adds findings instead.
func (m *importer) finish(n *network, topology *v1alpha1.NetworkTopology) {
	topology.Name = m.unique("topology", n.name)
	topology.Spec.Steps = slices.Clone(topology.Spec.Steps) // composed networks are compared by the original steps
	if step := cnichain.DefaultRouteStep(&topology.Spec); step != nil {
		step.DefaultRoute = true
		n.add(true, "", nil, "it adds a default route, which replaces the one of the cluster network in its pods, as "+
			"with Multus: if this is not intended, remove the route and defaultRoute from step %s", step.Name)
	}
	if problems := m.problemsOf(topology); len(problems) > 0 {
		for _, problem := range problems {
			n.add(true, "", nil, "no topology was created, since it would not be valid: %s", problem)
		}
		return
	}
	n.topology = topology
	for _, remark := range cnichain.Remarks(topology, m.options.Schemas) {
		n.add(true, "", nil, "%s", remark)
	}
}

// namespacesOf returns a selector that selects namespaces by name; nil if names is empty.
func namespacesOf(names []string) *metav1.LabelSelector {
	const label = "kubernetes.io/metadata.name"
	switch len(names) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{label: names[0]}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: label, Operator: metav1.LabelSelectorOpIn, Values: names,
	}}}
}

// step translates one plugin of a network. The first plugin becomes the root step. Every other plugin becomes a step
// that depends on the previous one.
func (m *importer) step(n *network, f *fields, before []v1alpha1.Step) *v1alpha1.Step {
	cniType := f.text("type")
	if cniType == "" {
		f.add(true, f.path+"type", nil, "is missing, so the plugin is unknown: add it")
		return nil
	}
	root := len(before) == 0
	schema, hasSchema := m.options.Schemas.Lookup(cniType)
	spell(f.values, schema.Config)
	if !root && slices.Contains(known().RDMAPlugins, cniType) {
		before[0].RDMA = &v1alpha1.StepRDMA{}
		f.takeAll()
		f.add(false, f.path+"type", cniType, "the driver moves the RDMA device itself, and gives containers its "+
			"device files (rdma of the root step)")
		return nil
	}
	step := &v1alpha1.Step{Name: stepName(cniType, before), Type: cniType}
	switch {
	case !root:
		step.DependOn = []string{before[len(before)-1].Name}
		m.inside(f, &schema, before)
	case hasSchema && schema.Input.PrevResult == requiresResult:
		n.add(true, f.path+"type", cniType, "needs an interface that an earlier plugin of the list makes, so it was "+
			"not translated: add that plugin")
		return nil
	case inPod(f) || schema.Input.Interfaces.Min != nil:
		if !m.onLinks(n, f, step, &schema) {
			return nil
		}
	case !m.root(n, f, step, &schema, hasSchema):
		return nil
	}
	m.capabilities(f, step)
	m.configure(n, f, step)
	return step
}

// spell changes the case of keys to match the schema, because plugins ignore case but topologies do not. If a key also
// exists with the correct case, the other key becomes a finding.
func spell(config map[string]any, schema *v1alpha1.PluginConfig) {
	if schema == nil {
		return
	}
	for _, key := range sortedKeys(config) {
		for _, property := range sortedKeys(schema.Properties) {
			if _, taken := config[property]; !taken && strings.EqualFold(key, property) {
				config[property] = config[key]
				delete(config, key)
			}
		}
	}
}

// stepName returns an unused step name that is derived from the plugin's name.
func stepName(cniType string, before []v1alpha1.Step) string {
	base := strings.Trim(noNameRunes.ReplaceAllString(strings.ToLower(cniType), "-"), "-")
	base = strings.Trim(base[:min(len(base), 36)], "-")
	return unused(cmp.Or(base, "step"), func(name string) bool {
		return slices.ContainsFunc(before, func(s v1alpha1.Step) bool { return s.Name == name })
	})
}

// root sets the selector of the root step. It selects either the resource's devices or the device named in the
// configuration. If there is neither, root adds a finding and returns false. The resource takes precedence, because
// runtimes replace the configured device with the allocated one.
func (m *importer) root(n *network, f *fields, step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec,
	hasSchema bool) bool {
	term := m.namedDevice(n, f, schema, hasSchema)
	switch {
	case n.resource != "" && !takesFunctions(schema) && lacksLink(schema):
		n.add(true, f.path+"type", step.Type, "names no link, and would find one by the device of the resource, so it "+
			"was not translated: set %s", schema.DeviceParameters[0].Parameter)
		return false
	case n.resource != "":
		term = m.ofResource(n)
	case term == "":
		n.add(true, f.path+"type", step.Type, "uses no device of the node, and the driver attaches only devices, so "+
			"it was not translated: set a device, or keep this network with Multus")
		return false
	}
	step.Selector = &v1alpha1.StepSelector{CEL: term}
	n.selector = term
	if m.isKept(n) {
		step.ExtendedResourceName = n.resource
	}
	n.identify(step)
	for _, p := range n.pools {
		if p.vfio {
			step.Driver = driverVFIO
		} else if p.rdma {
			// The RDMA shared device plugin adds all device files.
			step.RDMA = &v1alpha1.StepRDMA{ManagementDevices: p.shared}
		}
		if p.vhost { // the device plugin adds both device files
			step.DeviceNodes = []v1alpha1.DeviceNode{v1alpha1.DeviceNodeVhostNet, v1alpha1.DeviceNodeTun}
		}
	}
	if step.Driver != "" {
		step.RDMA, step.ClaimParameters = nil, nil
	}
	if schema.Output.Interfaces == deviceFiles {
		step.ClaimParameters = nil // there is no interface that claims could name
	}
	return true
}

// identify sets the CNI network name in the first step of a network. It also allows claims to set the interface name,
// because every pod can set it with Multus.
func (n *network) identify(step *v1alpha1.Step) {
	step.ClaimParameters = []v1alpha1.ClaimParameter{v1alpha1.ClaimInterfaceName}
	if cnichain.IsNetworkName(n.cniName) && len(n.cniName) <= 128 {
		step.Network = n.cniName // IPAM plugins store their leases under this name
	} else if n.cniName != "" {
		n.add(true, "name", n.cniName, "is not a valid name of a CNI network, so IPAM plugins start without the "+
			"existing leases: use separate address ranges")
	}
}

// preferLink clears a network's resource if the plugin accepts links only by name and the configuration specifies one,
// because Multus does not replace that name with the device allocated from the resource.
func (m *importer) preferLink(n *network) {
	f := n.plugins[0]
	schema, _ := m.options.Schemas.Lookup(f.text("type"))
	spell(f.values, schema.Config)
	if n.resource == "" || takesFunctions(&schema) {
		return
	}
	for _, parameter := range schema.DeviceParameters {
		if link, _ := f.values[parameter.Parameter].(string); link != "" {
			domain, _, _ := strings.Cut(n.resource, "/")
			n.add(!slices.Contains(known().Markers, domain), "metadata.annotations", n.resource, "%s uses the link "+
				"%q of its configuration, so pods get an interface on this link, and no device of the resource",
				f.text("type"), link)
			n.resource = ""
			return
		}
	}
}

// takesFunctions reports whether a plugin accepts a device by PCI address.
func takesFunctions(schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return slices.ContainsFunc(schema.DeviceParameters, func(p v1alpha1.DeviceParameter) bool {
		return p.Attribute != byName
	})
}

// lacksLink reports whether the plugin's schema requires the name of a link.
func lacksLink(schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return slices.ContainsFunc(schema.DeviceParameters, func(p v1alpha1.DeviceParameter) bool {
		return schema.Config != nil && slices.Contains(schema.Config.Required, p.Parameter)
	})
}

// namedDevice returns the term that selects the device named in a configuration parameter; empty if there is none. If
// the plugin has a schema, the parameter is removed, because the driver sets it. Otherwise, the parameter is kept.
func (m *importer) namedDevice(n *network, f *fields, schema *v1alpha1.CNIPluginSchemaSpec, hasSchema bool) string {
	parameters := schema.DeviceParameters
	if !hasSchema {
		for _, cniType := range sortedKeys(m.options.Schemas.All()) {
			other, _ := m.options.Schemas.Lookup(cniType)
			parameters = append(parameters, other.DeviceParameters...)
		}
	}
	term := ""
	for _, parameter := range parameters {
		value, isText := f.values[parameter.Parameter].(string)
		if hasSchema {
			f.pop(parameter.Parameter)
		}
		switch {
		case !isText || value == "" || term != "":
		case n.resource != "" && hasSchema:
			f.add(true, f.path+parameter.Parameter, value, "the network also has a resource, whose devices are used: "+
				"write a selector by hand if this is another device")
		case parameter.Attribute == byName:
			n.link, term = value, isOneOf("ifName", []string{value})
		default:
			n.link, term = pciAddress(value), isOneOf("pciAddress", []string{pciAddress(value)})
		}
	}
	return term
}

// inPod reports whether the configuration specifies that the plugin's lower device is in the pod.
func inPod(f *fields) bool {
	for _, key := range []string{"linkInContainer", "linksInContainer"} {
		if enabled, _ := f.values[key].(bool); enabled {
			return true
		}
	}
	return false
}

// inside connects a plugin whose lower device is in the pod to the previous step. The configuration contains the name
// that Multus would assign to that device, but in the new pod, claims determine the names.
func (m *importer) inside(f *fields, schema *v1alpha1.CNIPluginSchemaSpec, before []v1alpha1.Step) {
	if inPod, _ := f.values["linkInContainer"].(bool); !inPod {
		return
	}
	for _, parameter := range schema.DeviceParameters {
		if value, isText := f.values[parameter.Parameter].(string); isText && parameter.Attribute == byName {
			f.values[parameter.Parameter] = interfaceOf(before[len(before)-1].Name)
			f.add(false, f.path+parameter.Parameter, value, "it uses the interface of the previous step, regardless "+
				"of its name in the pod")
		}
	}
}

// capabilities translates the capabilities with which a runtime passes data from the pod to the plugin. In CNI, the
// runtime adds runtimeConfig for each enabled capability. Here, claims set the parameters that the topology allows.
func (m *importer) capabilities(f *fields, step *v1alpha1.Step) {
	capabilities := f.child("capabilities")
	for _, key := range sortedKeys(capabilities.values) {
		if enabled, _ := capabilities.pop(key).(bool); !enabled {
			continue
		}
		parameter := v1alpha1.ClaimParameter(key)
		switch {
		case parameter == v1alpha1.ClaimMAC || parameter == v1alpha1.ClaimIPs:
			if reason := m.allowed(f, step, parameter); reason != "" {
				capabilities.add(true, capabilities.path+key, nil, "claims cannot set it: %s", reason)
				continue
			}
			step.ClaimParameters = append(step.ClaimParameters, parameter)
		case strings.EqualFold(key, "deviceID"):
			capabilities.add(false, capabilities.path+key, nil, "the driver passes the device to the plugin")
		default:
			capabilities.add(true, capabilities.path+key, nil, "pods cannot set it: set a common value for all pods "+
				"in config.runtimeConfig of the step")
		}
	}
}

// allowed returns the reason why claims cannot set a parameter; empty if they can.
func (m *importer) allowed(f *fields, step *v1alpha1.Step, parameter v1alpha1.ClaimParameter) string {
	cniType, capability := step.Type, v1alpha1.CapabilityMAC
	if parameter == v1alpha1.ClaimIPs {
		ipam, _ := f.values["ipam"].(map[string]any)
		cniType, _ = ipam["type"].(string)
		capability = v1alpha1.CapabilityIPs
		switch {
		case cniType == "":
			return "the plugin has no ipam"
		case step.Driver != "":
			return "the application accesses the device directly, so there is no interface"
		}
	}
	schema, isKnown := m.options.Schemas.Lookup(cniType)
	switch {
	case !isKnown || slices.Contains(schema.Capabilities, capability):
	case known().Withheld[cniType] == capability:
		schema.Capabilities = append(slices.Clone(schema.Capabilities), capability)
		object := v1alpha1.CNIPluginSchema{Spec: schema}
		object.APIVersion, object.Kind = v1alpha1.GroupVersion().String(), manifest.KindSchema
		object.Name = cniType
		m.options.Schemas = m.options.Schemas.With(object)
		m.schemas = append(m.schemas, &object)
		f.add(true, f.path+"capabilities."+string(parameter), nil, "claims may set any address, as pods may with "+
			"Multus: this needs the CNIPluginSchema %s in the output, so apply it only if you trust the authors of "+
			"claims", cniType)
	default:
		return fmt.Sprintf("the schema of %s has no capability %s; if you trust the authors of claims, create a "+
			"CNIPluginSchema with this capability", cniType, capability)
	}
	return ""
}

// configure copies the rest of the configuration, except for parameters that are in neither the plugin's schema nor the
// schema of its IPAM plugin. ipam is copied as an object, because the driver passes it to the plugin, which delegates
// to the IPAM plugin.
func (m *importer) configure(n *network, f *fields, step *v1alpha1.Step) {
	f.ignore("prevResult")
	config := map[string]any{}
	for _, key := range sortedKeys(f.values) {
		if !f.read[key] {
			config[key] = f.pop(key)
		}
	}
	m.keepAccepted(f, "", step.Type, config, "args", "dns", "runtimeConfig")
	if ipam, isObject := config["ipam"].(map[string]any); isObject {
		cniType, _ := ipam["type"].(string)
		m.keepAccepted(f, "ipam.", cniType, ipam, "type")
	}
	if len(config) == 0 {
		return
	}
	raw, err := json.Marshal(config)
	if err != nil {
		f.add(true, f.whole(), nil, "cannot be encoded: %v", err)
		return
	}
	rest := string(raw)
	for _, parent := range step.DependOn {
		rest = strings.ReplaceAll(rest, interfaceOf(parent), "")
	}
	if strings.Contains(rest, "{{") {
		f.add(true, f.whole(), nil, "contains {{, which starts a template in a topology, so it was not translated: "+
			"write the topology by hand")
		n.refused = true
	}
	step.Config = &runtime.RawExtension{Raw: raw}
}

// keepAccepted removes parameters that are neither in a plugin's schema nor common to all plugins. If a plugin has no
// schema, all parameters are kept.
func (m *importer) keepAccepted(f *fields, path, cniType string, config map[string]any, common ...string) {
	schema, hasSchema := m.options.Schemas.Lookup(cniType)
	if !hasSchema || schema.Config == nil {
		return
	}
	spell(config, schema.Config)
	for _, key := range sortedKeys(config) {
		if _, accepted := schema.Config.Properties[key]; accepted || slices.Contains(common, key) {
			continue
		}
		f.add(true, f.path+path+key, config[key], "topologies cannot set this parameter of %s, so it was left out",
			cniType)
		delete(config, key)
	}
}
