package cnichain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// PodNetwork is the network that a pod must select by annotation before a step's plugin attaches the pod.
type PodNetwork struct {
	// Annotation is the name of the pod annotation that selects networks.
	Annotation string `json:"annotation"`
	// Name is namespace/name.
	Name string `json:"name"`
	// NamesInterface is true if the annotation can also name the interface.
	NamesInterface bool `json:"namesInterface,omitempty"`
}

// Selection is a network selected in an annotation.
type Selection struct {
	// Network is namespace/name.
	Network string
	// IfName is the interface's name: the requested name, or net<n> for the n-th network.
	IfName string
}

// ParseSelections parses an annotation that selects networks for a pod in a namespace: a list of
// [namespace/]name[@interface], or a JSON list of objects (Network Custom Resource Definition De-facto Standard, 4.1).
func ParseSelections(text, namespace string) ([]Selection, error) {
	var elements []selectionElement
	switch {
	case text == "":
		return nil, nil
	case strings.ContainsAny(text, `[{"`):
		if err := json.Unmarshal([]byte(text), &elements); err != nil {
			return nil, fmt.Errorf("it is not a list of networks in JSON: %w", err)
		}
	default:
		for i, item := range strings.Split(text, ",") {
			element, valid := parseElement(item)
			if !valid {
				return nil, fmt.Errorf("its network %d is not [NAMESPACE/]NAME[@INTERFACE] in lower-case letters, "+
					"digits and '-'", i+1)
			}
			elements = append(elements, element)
		}
	}
	selections := make([]Selection, 0, len(elements))
	for i, e := range elements {
		if e.Name == "" || strings.ContainsAny(e.Name+e.Namespace+e.Interface, "/@") {
			return nil, fmt.Errorf("its network %d has no valid name", i+1)
		}
		selection := Selection{Network: namespace + "/" + e.Name, IfName: "net" + strconv.Itoa(i+1)}
		if e.Namespace != "" {
			selection.Network = e.Namespace + "/" + e.Name
		}
		if e.Interface != "" {
			selection.IfName = e.Interface
		}
		selections = append(selections, selection)
	}
	return selections, nil
}

// selectionElement is an element in the JSON list.
type selectionElement struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface"`
}

// parseElement parses [namespace/]name[@interface]. Other programs that read the annotation reject the whole annotation
// if one element is invalid, so each part must be a DNS label.
func parseElement(item string) (element selectionElement, valid bool) {
	network, ifName, named := strings.Cut(strings.TrimSpace(item), "@")
	namespace, name, qualified := strings.Cut(network, "/")
	if !qualified {
		namespace, name = "", network
	}
	element = selectionElement{Name: strings.TrimSpace(name), Namespace: strings.TrimSpace(namespace),
		Interface: strings.TrimSpace(ifName)}
	isLabel := func(text string, given bool) bool { return !given || len(validation.IsDNS1123Label(text)) == 0 }
	return element, isLabel(element.Name, true) && isLabel(element.Namespace, qualified) &&
		isLabel(element.Interface, named)
}

// WantedNetwork is the network that a pod must select for one step.
type WantedNetwork struct {
	PodNetwork
	// IfName is the interface name that the topology or claim requests; empty if any name is acceptable.
	IfName string
	// Step is the description of the step for messages.
	Step string
}

// SelectNetworks finds the selection for each wanted network in a pod's annotations, and returns the interface names in
// the same order as wanted: the names in the annotations, or the requested name for a plugin that accepts any name. A
// network that is selected twice can be attached twice. SelectNetworks reports all problems.
//
// For example, a pod selects "net-a@eth1,net-a", and two steps need net-a, one of them with the interface name eth1.
// With a plugin that takes names from the annotation, that step gets the first selection, regardless of the order of
// the steps, and the other step gets the second selection, which is net2.
func SelectNetworks(wanted []WantedNetwork, annotations map[string]string, namespace string) ([]string, error) {
	names := make([]string, len(wanted))
	free := map[string][]Selection{} // by annotation
	var problems []error
	for i := range wanted {
		annotation := wanted[i].Annotation
		if _, read := free[annotation]; read {
			continue
		}
		selections, err := ParseSelections(annotations[annotation], namespace)
		if err != nil {
			problems = append(problems, fmt.Errorf("cannot read the pod's annotation %s: %w", annotation, err))
		}
		free[annotation] = selections
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	consume := func(i int) {
		want := &wanted[i]
		fits := func(s Selection) bool {
			return s.Network == want.Name && (!want.NamesInterface || want.IfName == "" || s.IfName == want.IfName)
		}
		index := slices.IndexFunc(free[want.Annotation], fits)
		if index < 0 {
			problems = append(problems, unselected(want, annotations[want.Annotation], namespace))
			return
		}
		names[i] = want.IfName
		if want.NamesInterface {
			names[i] = free[want.Annotation][index].IfName
			free[want.Annotation] = slices.Delete(free[want.Annotation], index, index+1)
		}
	}
	for _, named := range []bool{true, false} { // steps that request a name come before steps that accept any name
		for i := range wanted {
			if (wanted[i].IfName != "") == named {
				consume(i)
			}
		}
	}
	return names, errors.Join(problems...)
}

// unselected returns the error for a network that the annotation does not select.
func unselected(want *WantedNetwork, text, namespace string) error {
	have := "the pod has no such annotation"
	selections, err := ParseSelections(text, namespace)
	if err == nil && len(selections) > 0 {
		texts := make([]string, len(selections))
		for i, s := range selections {
			texts[i] = s.Network + "@" + s.IfName
		}
		have = "it selects " + joinSome(texts)
	}
	add := want.Name
	if want.NamesInterface && want.IfName != "" {
		add += "@" + want.IfName
	}
	return fmt.Errorf("cannot attach %s: the pod's annotation %s must select network %s for it, and %s; add %s to the "+
		"annotation", want.Step, want.Annotation, want.Name, have, add)
}

// podNetwork returns the network that pods must select for a step, or nil if the step's plugin does not require a
// network. The network's name may contain {{ pod.namespace }} and {{ claim.namespace }}, which have the same value,
// because a pod's claims are in its namespace.
func podNetwork(
	step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec, namespace string,
) (*PodNetwork, *field.Error) {
	rule := schema.PodNetworks
	if rule == nil {
		return nil, nil
	}
	path := field.NewPath("config", rule.Parameter)
	config, err := configObject(step)
	name, isText := config[rule.Parameter].(string)
	if err != nil || !isText || name == "" {
		return nil, field.Required(path, fmt.Sprintf("%s attaches only networks that pods select: name this one",
			step.Type))
	}
	rendered, err := template.New().RenderString(name, path.String(), func(t template.Token) (any, error) {
		if (t.Root == template.VarPod || t.Root == template.VarClaim) && t.Field == "namespace" {
			return namespace, nil
		}
		return nil, errors.New("the name of a network may only contain {{ pod.namespace }}")
	})
	if err != nil {
		return nil, field.Invalid(path, name, err.Error())
	}
	before, after, _ := strings.Cut(rendered, "/")
	if len(validation.IsDNS1123Label(before)) > 0 || len(validation.IsDNS1123Subdomain(after)) > 0 {
		return nil, field.Invalid(path, name, "must be namespace/name")
	}
	return &PodNetwork{Annotation: rule.Annotation, Name: rendered,
		NamesInterface: rule.InterfaceNames == namesSelected}, nil
}

func configObject(step *v1alpha1.Step) (map[string]any, error) {
	decoded, err := template.DecodeJSON(rawConfig(step))
	if err != nil {
		return nil, err
	}
	config, _ := decoded.(map[string]any)
	return config, nil
}

// PodNetworks returns the networks, one per step, that a topology offers to pods in a namespace. A pod is attached to
// the networks that it selects. PodNetworks omits steps whose network cannot be determined; [Compile] rejects these
// steps.
func PodNetworks(topology *v1alpha1.NetworkTopology, schemas Schemas, namespace string) []WantedNetwork {
	var wanted []WantedNetwork
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		schema, _ := schemas.Lookup(step.Type)
		if network, problem := podNetwork(step, &schema, namespace); network != nil && problem == nil {
			planned := PlanStep{Name: step.Name, Type: step.Type, IfName: step.WantedInterfaceName(), PodNetwork: network}
			wanted = append(wanted, planned.WantedNetwork(topology.Name))
		}
	}
	return wanted
}

// WantedNetworks returns the networks that a pod must select for the steps in a plan.
func (p *Plan) WantedNetworks() []WantedNetwork {
	var wanted []WantedNetwork
	for i := range p.Steps {
		if step := &p.Steps[i]; step.PodNetwork != nil {
			wanted = append(wanted, step.WantedNetwork(p.Topology))
		}
	}
	return wanted
}

// WantedNetwork returns the network that a pod must select for a step with a PodNetwork. It ignores an interface name
// that contains a template. Such a name can occur in a topology that is older than the plugin's schema.
func (s *PlanStep) WantedNetwork(topology string) WantedNetwork {
	want := WantedNetwork{PodNetwork: *s.PodNetwork, Step: s.Title(topology)}
	if !template.Contains(s.IfName) {
		want.IfName = s.IfName
	}
	return want
}

// Definitions returns the sorted names, as namespace/name, of the NetworkAttachmentDefinitions that [Define] needs.
func Definitions(topology *v1alpha1.NetworkTopology, schemas Schemas, namespace string) []string {
	names := map[string]bool{}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		schema, _ := schemas.Lookup(step.Type)
		network, problem := podNetwork(step, &schema, namespace)
		if network != nil && problem == nil && len(schema.PodNetworks.Defined) > 0 {
			names[network.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Define returns the topology as it applies to claims in a namespace, with the NetworkAttachmentDefinitions for its
// networks merged into its steps. configs maps the namespace/name of each existing definition to the definition's
// spec.config. The path of each problem is a field in the topology.
func Define(
	topology *v1alpha1.NetworkTopology, schemas Schemas, namespace string, configs map[string]string,
) (*v1alpha1.NetworkTopology, field.ErrorList) {
	var problems field.ErrorList
	defined := topology.DeepCopy()
	for i := range defined.Spec.Steps {
		step := &defined.Spec.Steps[i]
		schema, _ := schemas.Lookup(step.Type)
		network, problem := podNetwork(step, &schema, namespace)
		if network == nil || problem != nil || len(schema.PodNetworks.Defined) == 0 {
			continue
		}
		path := field.NewPath("spec", "steps").Index(i)
		config, exists := configs[network.Name]
		if !exists {
			problems = append(problems, field.NotFound(path.Child("config", schema.PodNetworks.Parameter),
				network.Name+" (no such NetworkAttachmentDefinition: create it, or the UserDefinedNetwork that "+
					"makes it)"))
			continue
		}
		if err := define(step, &schema, network.Name, config); err != nil {
			problems = append(problems, field.Invalid(path.Child("config", schema.PodNetworks.Parameter), network.Name,
				err.Error()))
			continue
		}
		problems = append(problems, checkDefined(path, step, &schema)...)
	}
	return defined, problems
}

// define merges the NetworkAttachmentDefinition for a step's network into the step.
func define(step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec, name, text string) error {
	said, err := definitionOf(step.Type, text)
	if err != nil {
		return fmt.Errorf("its NetworkAttachmentDefinition %w", err)
	}
	if said[schema.PodNetworks.Parameter] != name {
		return fmt.Errorf("the %s in its NetworkAttachmentDefinition is %v; make it %s",
			schema.PodNetworks.Parameter, said[schema.PodNetworks.Parameter], name)
	}
	network, _ := said["name"].(string)
	if step.Network != "" && step.Network != network {
		return fmt.Errorf("the step has network %s, and its NetworkAttachmentDefinition %q; remove network from the "+
			"step", step.Network, network)
	}
	step.Network = network
	config, err := configObject(step)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if value, duplicate := said[key]; duplicate && key != schema.PodNetworks.Parameter &&
			!sameJSON(config[key], value) {
			return fmt.Errorf("the step has %s %v, and its NetworkAttachmentDefinition %v; remove it from the step",
				key, config[key], value)
		}
	}
	for _, key := range schema.PodNetworks.Defined {
		if value, found := said[key]; found {
			config[key] = value
		}
	}
	step.Config.Raw, err = json.Marshal(config)
	return err
}

// definitionOf parses the configuration in a NetworkAttachmentDefinition, which is either a plugin's configuration or a
// list with one plugin. The configuration must not contain templates.
func definitionOf(cniType, text string) (map[string]any, error) {
	decoded, err := template.DecodeJSON(json.RawMessage(text))
	if err != nil {
		return nil, fmt.Errorf("has a configuration that is not JSON: %w", err)
	}
	said, isObject := decoded.(map[string]any)
	if plugins, isList := said["plugins"].([]any); isList && len(plugins) == 1 {
		plugin, _ := plugins[0].(map[string]any)
		plugin = maps.Clone(plugin)
		if plugin != nil {
			plugin["name"] = said["name"]
		}
		said = plugin
	}
	if !isObject || said["type"] != cniType {
		return nil, fmt.Errorf("does not configure only %s", cniType)
	}
	plain, err := json.Marshal(decoded) // a string may contain escaped braces
	if err != nil || template.Contains(string(plain)) {
		return nil, errors.New("contains a {{ template }}, which is only allowed in topologies")
	}
	return said, nil
}

func sameJSON(first, second any) bool {
	a, errA := json.Marshal(first)
	b, errB := json.Marshal(second)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// checkDefined checks a step after its definition has been merged: the values must be valid, and no required value may
// be missing.
func checkDefined(path *field.Path, step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) field.ErrorList {
	config, err := configObject(step)
	if err != nil || schema.Config == nil {
		return nil
	}
	c := &contracts{templates: template.New()}
	checker := &parameters{templates: c.templates, add: c.add, given: driversParameters(step, schema)}
	checker.object(path.Child("config"), config, withCommon(schema.Config, commonParameters()), step.Type)
	return c.problems
}
