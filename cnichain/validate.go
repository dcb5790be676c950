package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// reservedKeys returns the keys in a plugin's configuration that the driver sets, each with a suggested fix.
func reservedKeys() map[string]string {
	return map[string]string{
		"type":       "set the step's type instead",
		"cniVersion": "the driver negotiates it with the plugin",
		"prevResult": "set the step's prevResult instead",
	}
}

// networkPattern is the pattern of CNI network names.
const networkPattern = `^[A-Za-z0-9][A-Za-z0-9_.-]*$`

var (
	networkForm = regexp.MustCompile(networkPattern)
	binaryForm  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// DriverVFIO is the kernel driver that gives applications direct access to a device.
const DriverVFIO = "vfio-pci"

// maxSteps is the maximum number of steps in a topology.
const maxSteps = 32

// Validate reports all problems in a topology that can be found without devices, plugins or CEL. It is used for new
// topologies. Nodes apply only some of these checks to stored topologies; see [ValidateStored].
func Validate(topology *v1alpha1.NetworkTopology, schemas Schemas) field.ErrorList {
	return append(ValidateStored(topology, schemas), CheckContracts(topology, schemas)...)
}

// ValidateStored reports the problems that make a node reject a topology. It checks names, step order, references and
// templates, and rejects configuration that only the driver may set. It repeats the CRD's rules, since the CRD
// installed in the cluster may be older. It does not check the rest of the plugins' configuration, since a schema
// change must not prevent pods from starting.
//
// For example, if a new version of a schema requires a key, CheckContracts rejects a new topology without that key. An
// old topology without that key continues to work on nodes, or fails with the plugin's own error.
func ValidateStored(topology *v1alpha1.NetworkTopology, schemas Schemas) field.ErrorList {
	v := &validator{schemas: schemas, templates: template.New(), seen: map[string]int{}, steps: topology.Spec.Steps}
	path := field.NewPath("spec", "steps")
	if len(v.steps) == 0 {
		return field.ErrorList{field.Required(path, "a topology needs at least one step")}
	}
	if len(v.steps) > maxSteps {
		return field.ErrorList{field.TooMany(path, len(v.steps), maxSteps)}
	}
	for i := range v.steps {
		v.step(path.Index(i), i)
	}
	v.attachment(field.NewPath("spec"), topology.Spec.Attachment)
	return v.problems
}

// attachment enforces the CRD's rules for the attachment field.
func (v *validator) attachment(path *field.Path, attachment v1alpha1.Attachment) {
	switch attachment {
	case "":
		return
	case v1alpha1.AttachmentExternal:
	default:
		v.add(field.NotSupported(path.Child("attachment"), attachment,
			[]v1alpha1.Attachment{v1alpha1.AttachmentExternal}))
		return
	}
	for i := range v.steps {
		step := v.steps[i]
		rest := v1alpha1.Step{Name: step.Name, Type: step.Type, Selector: step.Selector,
			ExtendedResourceName: step.ExtendedResourceName}
		if len(step.DependOn) == 0 {
			rest.DependOn = step.DependOn // an empty list is equivalent to none
		}
		if !reflect.DeepEqual(step, rest) {
			v.add(field.Forbidden(path.Child("steps").Index(i), "with attachment External a step has only name, type, "+
				"selector and extendedResourceName: the component that attaches its device configures the rest"))
		}
	}
}

type validator struct {
	schemas   Schemas
	templates template.Engine
	steps     []v1alpha1.Step
	seen      map[string]int // index of each step before the current one, by name
	problems  field.ErrorList
}

func (v *validator) add(problem *field.Error) { v.problems = append(v.problems, problem) }

// step checks a step and its references to earlier steps. It does not add the step to seen until the end, so that a
// dependency of the step on itself is not mistaken for a dependency on an earlier step.
func (v *validator) step(path *field.Path, i int) {
	step := &v.steps[i]
	v.name(path.Child("name"), step.Name)
	v.binary(path.Child("type"), step.Type)
	v.dependencies(path.Child("dependOn"), step)
	v.root(path, step)
	v.driver(path, step)
	v.rdma(path, step)
	v.extendedResource(path, step)
	v.configuration(path.Child("config"), step)
	v.ifName(path.Child("ifName"), step)
	if step.Network != "" && !IsNetworkName(step.Network) {
		v.add(field.Invalid(path.Child("network"), step.Network,
			"must match "+networkPattern+", because IPAM plugins use it as the name of a directory"))
	}
	if allowed := []v1alpha1.PrevResult{v1alpha1.PrevResultNone, v1alpha1.PrevResultParents}; step.PrevResult != "" &&
		!slices.Contains(allowed, step.PrevResult) {
		v.add(field.NotSupported(path.Child("prevResult"), step.PrevResult, allowed))
	}
	v.claimParameters(path.Child("claimParameters"), step)
	v.addressRange(path, step)
	v.seen[step.Name] = i
}

// name checks a step's name. The name is used in DeviceClass names, in templates, and as the network name for IPAM
// plugins, all of which allow fewer characters than an object's name.
func (v *validator) name(path *field.Path, name string) {
	for _, problem := range validation.IsDNS1123Label(name) {
		v.add(field.Invalid(path, name, problem))
	}
	if len(name) > 40 {
		v.add(field.TooLong(path, name, 40))
	}
	if slices.Contains(reservedRoots(), name) {
		v.add(field.Invalid(path, name, "is reserved by the template language: use another name"))
	}
	if _, duplicate := v.seen[name]; duplicate {
		v.add(field.Duplicate(path, name))
	}
}

// binary rejects a type that is not a bare file name, because the plugin is looked up only in the CNI directories.
func (v *validator) binary(path *field.Path, cniType string) {
	if err := CheckBinaryName(cniType); err != nil {
		v.add(field.Invalid(path, cniType, err.Error()))
	}
}

// IsNetworkName reports whether a name is valid for a CNI network. IPAM plugins use this name as a directory name.
func IsNetworkName(name string) bool { return networkForm.MatchString(name) }

// CheckBinaryName returns an error for a CNI type that is not a bare file name.
func CheckBinaryName(cniType string) error {
	if !binaryForm.MatchString(cniType) || len(cniType) > 63 {
		return fmt.Errorf("must be the bare file name of a CNI plugin, for example macvlan")
	}
	return nil
}

// dependencies checks the names in dependOn. Parents must precede their children in the list, so every cycle contains a
// name that has not been seen yet.
func (v *validator) dependencies(path *field.Path, step *v1alpha1.Step) {
	for i, parent := range step.DependOn {
		if index, before := v.seen[parent]; before {
			if v.steps[index].Driver != "" {
				v.add(field.Invalid(path.Index(i), parent, "nothing can depend on a step with a driver: it makes no "+
					"interface"))
			}
			if slices.Index(step.DependOn, parent) != i {
				v.add(field.Duplicate(path.Index(i), parent))
			}
			continue
		}
		if parent == step.Name {
			v.add(field.Invalid(path.Index(i), parent, fmt.Sprintf("step %q depends on itself: remove its name from "+
				"its dependOn", step.Name)))
			continue
		}
		if slices.ContainsFunc(v.steps, func(s v1alpha1.Step) bool { return s.Name == parent }) {
			v.add(field.Invalid(path.Index(i), parent,
				fmt.Sprintf("step %q must come after %q: move it down, below the steps in its dependOn; if they depend on "+
					"each other, remove one from dependOn", step.Name, parent)))
			continue
		}
		v.add(field.Invalid(path.Index(i), parent, fmt.Sprintf("step %s: dependOn names step %q, which does not exist",
			step.Name, parent)))
	}
}

// root checks that a step has either a device or dependencies on other steps, but not both.
func (v *validator) root(path *field.Path, step *v1alpha1.Step) {
	schema, known := v.schemas.Lookup(step.Type)
	if len(step.DependOn) > 0 {
		if step.Selector != nil {
			v.add(field.Forbidden(path.Child("selector"), "a step with dependOn takes no device of its own: remove "+
				"selector, or dependOn"))
		}
		if !v.schemas.makesInterface(step.Type) && len(step.DependOn) > 1 && step.WantedInterfaceName() == "" {
			v.add(field.Required(path.Child("ifName"), fmt.Sprintf("%s creates no interface and the step has several "+
				"parents: set the interface that it works on", step.Type)))
		}
		return
	}
	if step.Selector == nil || strings.TrimSpace(step.Selector.CEL) == "" {
		v.add(field.Required(path.Child("selector", "cel"), "a step without dependOn is a root step: select its "+
			"devices"))
	}
	if known && schema.Input.PrevResult == prevResultRequired {
		v.add(field.Required(path.Child("dependOn"), fmt.Sprintf("%s works on an interface that another step made: "+
			"name that step", step.Type)))
	}
	if step.PrevResult == v1alpha1.PrevResultParents {
		v.add(field.Forbidden(path.Child("prevResult"), "a root step has no parents whose results it could receive"))
	}
}

// driver enforces the CRD's rules for the driver field.
func (v *validator) driver(path *field.Path, step *v1alpha1.Step) {
	if step.Driver == "" {
		return
	}
	if step.Driver != DriverVFIO {
		v.add(field.NotSupported(path.Child("driver"), step.Driver, []string{DriverVFIO}))
	}
	if len(step.DependOn) > 0 || step.IfName != "" {
		v.add(field.Forbidden(path.Child("driver"), "driver is for root steps, and leaves the pod no interface that "+
			"ifName could name: remove one of them"))
	}
}

// rdma enforces the CRD's rules for the rdma, deviceNodes and limits fields.
func (v *validator) rdma(path *field.Path, step *v1alpha1.Step) {
	if len(step.DependOn) > 0 && (step.RDMA != nil || step.Limits != nil || len(step.DeviceNodes) > 0) {
		v.add(field.Forbidden(path, "rdma, deviceNodes and limits are for root steps, which take a device: move them "+
			"to the step that this one depends on"))
	}
	for i, node := range step.DeviceNodes {
		known := []v1alpha1.DeviceNode{v1alpha1.DeviceNodeVhostNet, v1alpha1.DeviceNodeTun}
		if path := path.Child("deviceNodes").Index(i); !slices.Contains(known, node) {
			v.add(field.NotSupported(path, node, known))
		} else if slices.Contains(step.DeviceNodes[:i], node) {
			v.add(field.Duplicate(path, node))
		}
	}
	if step.RDMA != nil && step.Driver != "" {
		v.add(field.Forbidden(path.Child("rdma"), "a device that is bound to another driver has no RDMA devices: "+
			"remove rdma or driver"))
	}
	if step.Limits == nil {
		return
	}
	if _, err := LockedMemory(step.Limits); err != nil {
		v.add(field.Invalid(path.Child("limits", "lockedMemory"), step.Limits.LockedMemory, err.Error()))
	}
	if step.RDMA == nil && (step.Limits.RDMAHandles != nil || step.Limits.RDMAObjects != nil) {
		v.add(field.Forbidden(path.Child("limits"), "rdmaHandles and rdmaObjects limit the use of RDMA devices, which "+
			"the step does not provide: set rdma, or remove them"))
	}
}

// extendedResource checks that an extended resource's name satisfies the API server's rules (isExtendedResourceName in
// the DeviceClass validation), and that no two steps use the same name.
func (v *validator) extendedResource(path *field.Path, step *v1alpha1.Step) {
	name, path := step.ExtendedResourceName, path.Child("extendedResourceName")
	if name == "" {
		return
	}
	if len(step.DependOn) > 0 {
		v.add(field.Forbidden(path, "extendedResourceName is for root steps, which have a DeviceClass: move it to the "+
			"step that this one depends on"))
		return
	}
	// Quotas use the resource name with a prefix.
	problems := validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix + name)
	switch {
	case strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix):
		v.add(field.Invalid(path, name, "names that contain kubernetes.io/ or begin with requests. belong to "+
			"Kubernetes: use a domain of your own"))
	case !strings.Contains(name, "/") || len(problems) > 0:
		v.add(field.Invalid(path, name, strings.Join(append([]string{"must be the name of an extended resource, such " +
			"as example.com/sriov_vf"}, problems...), "; ")))
	}
	for i := range v.steps {
		if other := &v.steps[i]; other.Name != step.Name && other.ExtendedResourceName == name {
			if _, before := v.seen[other.Name]; before {
				v.add(field.Duplicate(path, name))
			}
		}
	}
}

// claimParameters rejects claim parameters that the step's plugins would ignore, or would accept without restrictions.
// Nodes reject these parameters as well, since claims are written by namespace users.
func (v *validator) claimParameters(path *field.Path, step *v1alpha1.Step) {
	for i, parameter := range step.ClaimParameters {
		itemPath := path.Index(i)
		switch {
		case !slices.Contains(v1alpha1.ClaimParameterNames(), parameter):
			v.add(field.NotSupported(itemPath, parameter, v1alpha1.ClaimParameterNames()))
		case slices.Index(step.ClaimParameters, parameter) != i:
			v.add(field.Duplicate(itemPath, parameter))
		case step.Driver != "" && parameter != v1alpha1.ClaimMAC:
			v.add(field.Invalid(itemPath, parameter, "a step with a driver makes no interface: remove it"))
		case parameter == v1alpha1.ClaimMAC:
			v.capability(itemPath, parameter, step.Type, v1alpha1.CapabilityMAC)
		case parameter == v1alpha1.ClaimIPs && IPAMType(rawConfig(step)) == "":
			v.add(field.Invalid(itemPath, parameter, "the step assigns no addresses: name an IPAM plugin in "+
				"config.ipam.type"))
		case parameter == v1alpha1.ClaimIPs:
			v.capability(itemPath, parameter, IPAMType(rawConfig(step)), v1alpha1.CapabilityIPs)
		case !v.schemas.makesInterface(step.Type):
			v.add(field.Invalid(itemPath, parameter, step.Type+" makes no interface: allow it in the step that does"))
		}
	}
}

// capability checks that a plugin supports a key in the runtime configuration. For a plugin that moves a device (which
// has its own MAC address), the error suggests plugins that modify an interface. For other plugins, the error makes no
// suggestion, since an ipvlan, for example, must have the same MAC address as its parent.
func (v *validator) capability(path *field.Path, parameter v1alpha1.ClaimParameter, cniType string,
	capability v1alpha1.Capability) {
	schema, known := v.schemas.Lookup(cniType)
	if !known || slices.Contains(schema.Capabilities, capability) {
		return
	}
	remedy := "remove it"
	if modifiers := v.schemas.modifiersWith(capability); schema.Output.Devices == devicesMove && len(modifiers) > 0 {
		remedy += ", or allow it in a step of " + strings.Join(modifiers, " or ") + " that depends on this one"
	}
	v.add(field.Invalid(path, parameter, fmt.Sprintf("%s has no capability %s that claims may use (in its schema): %s",
		cniType, capability, remedy)))
}

// configuration checks a step's config. It rejects keys that the driver itself sets, since a user's value would be
// silently ignored, or would select a device other than the allocated one.
func (v *validator) configuration(path *field.Path, step *v1alpha1.Step) {
	raw := rawConfig(step)
	if len(raw) == 0 {
		return
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(raw, &config); err != nil {
		v.add(field.Invalid(path, string(raw), "must be a JSON object"))
		return
	}
	reserved := reservedKeys()
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if instead, isReserved := reserved[key]; isReserved {
			v.add(field.Forbidden(path.Child(key), "is set by the driver; "+instead))
		}
	}
	v.runtimeConfig(path.Child("runtimeConfig"), config["runtimeConfig"])
	schema, _ := v.schemas.Lookup(step.Type)
	for _, parameter := range schema.DeviceParameters {
		if _, set := config[parameter.Parameter]; set && len(step.DependOn) == 0 {
			v.add(field.Forbidden(path.Child(parameter.Parameter), "names the allocated device and is set by the "+
				"driver: remove it"))
		}
	}
	if ipam := IPAMType(raw); ipam != "" {
		v.binary(path.Child("ipam", "type"), ipam)
	}
	if _, err := v.templates.RenderJSON(raw, v.dry(step)); err != nil {
		v.add(field.Invalid(path, step.Name, err.Error()))
	}
}

// runtimeConfig checks the data that a runtime would pass to a plugin, such as portMappings. Only the driver may set
// the device.
func (v *validator) runtimeConfig(path *field.Path, raw json.RawMessage) {
	if raw == nil {
		return
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		v.add(field.Invalid(path, string(raw), "must be a JSON object"))
	}
	if _, set := given[runtimeDeviceID]; set {
		v.add(field.Forbidden(path.Child(runtimeDeviceID), "names the allocated device and is set by the driver: "+
			"remove it"))
	}
}

// ifName checks the name that a step requests for its interface, or the template for that name.
func (v *validator) ifName(path *field.Path, step *v1alpha1.Step) {
	name := step.WantedInterfaceName()
	if name == "" {
		return
	}
	if strings.Contains(name, "{{") {
		if _, err := v.templates.RenderString(name, "ifName", v.dry(step)); err != nil {
			v.add(field.Invalid(path, name, err.Error()))
		}
		return
	}
	if err := v1alpha1.CheckInterfaceName(name); err != nil {
		v.add(field.Invalid(path, name, err.Error()))
	}
}

// dry returns a function that resolves every token that is valid in a pod to a placeholder of the correct type.
func (v *validator) dry(step *v1alpha1.Step) template.Lookup {
	ancestors := v.ancestors(step)
	return func(t template.Token) (any, error) {
		switch t.Root {
		case template.VarPod, template.VarClaim, template.VarNode:
			return dryObject(t)
		case template.VarDevice:
			if len(step.DependOn) > 0 {
				return nil, fmt.Errorf("only root steps have a device; a later step can name one by its step, for "+
					"example {{ %s.pciAddress }}", step.DependOn[0])
			}
			return "device", nil
		}
		if t.Root == step.Name {
			return nil, fmt.Errorf("%q is this step itself, which has no result before it has run: leave it out, or "+
				"write it in a step that depends on this one", t.Root)
		}
		if !ancestors[t.Root] {
			return nil, fmt.Errorf("%q is not a step that this one depends on: add it to dependOn", t.Root)
		}
		return dryStep(t)
	}
}

// ancestors returns all direct and indirect dependencies of a step. When the step runs, only the results of these
// dependencies are guaranteed to exist.
func (v *validator) ancestors(step *v1alpha1.Step) map[string]bool {
	ancestors := map[string]bool{}
	pending := slices.Clone(step.DependOn)
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		if ancestors[name] {
			continue
		}
		ancestors[name] = true // includes later and missing steps, which the dependOn check reports
		for i := range v.steps {
			if v.steps[i].Name == name {
				pending = append(pending, v.steps[i].DependOn...)
			}
		}
	}
	return ancestors
}
