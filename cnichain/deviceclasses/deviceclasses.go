// Package deviceclasses generates the DeviceClasses for a NetworkTopology. Users request the topology's devices through
// these classes.
//
// Invariant: it is pure, and it alone defines the contents of generated classes. Code that writes
// classes to a cluster, or that evaluates which devices a class would select, calls this package.
package deviceclasses

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// OwnerKind is the kind of the object that owns generated classes.
const OwnerKind = "NetworkTopology"

// isOurDriver is the CEL condition that is true for devices of this driver. Every selector starts with this condition,
// because the scheduler evaluates a selector for the devices of all drivers, and reading an attribute that a device
// does not have is an error that aborts the scheduling of the pod.
const isOurDriver = `device.driver == "` + v1alpha1.DriverName + `"`

// Of returns the DeviceClasses for a topology, one for each root step, in step order. If listAttributes is true, the
// classes look for the CNI plugin in the list attribute, which nodes publish if list attributes are enabled; otherwise,
// they check the boolean attribute for the plugin. attachesInterface reports whether steps with a given CNI type attach
// an interface (cnichain.Schemas.AttachesInterface).
func Of(
	topology *v1alpha1.NetworkTopology, attachesInterface func(cniType string) bool, listAttributes bool,
) []resourceapi.DeviceClass {
	var classes []resourceapi.DeviceClass
	for i := range topology.Spec.Steps {
		if step := &topology.Spec.Steps[i]; len(step.DependOn) == 0 {
			needsInterface := topology.Spec.Attachment != v1alpha1.AttachmentExternal && attachesInterface(step.Type)
			classes = append(classes, class(topology, step, expression(step, needsInterface, listAttributes)))
		}
	}
	return classes
}

func class(topology *v1alpha1.NetworkTopology, step *v1alpha1.Step, selector string) resourceapi.DeviceClass {
	var extendedResource *string
	if step.ExtendedResourceName != "" {
		extendedResource = ptr.To(step.ExtendedResourceName)
	}
	var annotations map[string]string
	if topology.Spec.Description != "" {
		annotations = map[string]string{v1alpha1.AnnotationDescription: topology.Spec.Description}
	}
	return resourceapi.DeviceClass{
		TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "DeviceClass"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        v1alpha1.ClassName(topology.Name, step.Name),
			Annotations: annotations,
			Labels: map[string]string{
				v1alpha1.LabelTopology:    topology.Name,
				v1alpha1.LabelStep:        step.Name,
				v1alpha1.LabelTopologyUID: string(topology.UID),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         v1alpha1.GroupVersion().String(),
				Kind:               OwnerKind,
				Name:               topology.Name,
				UID:                topology.UID,
				Controller:         ptr.To(true),
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: resourceapi.DeviceClassSpec{
			ExtendedResourceName: extendedResource,
			Selectors: []resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{Expression: selector},
			}},
			Config: []resourceapi.DeviceClassConfiguration{{
				DeviceConfiguration: resourceapi.DeviceConfiguration{
					Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver:     v1alpha1.DriverName,
						Parameters: runtime.RawExtension{Raw: parameters(topology.Name, step.Name)},
					},
				},
			}},
		},
	}
}

// expression returns a CEL expression that is true for devices that a step can attach. It is a single expression rather
// than one per condition, because the scheduler spends most of its time on converting the device's attributes rather
// than on evaluation, and it repeats the conversion for each expression.
func expression(step *v1alpha1.Step, needsInterface, listAttributes bool) string {
	supports := fmt.Sprintf(`device.attributes["%s"].?%s.orValue(false)`, policyapi.CNIDomain,
		policyapi.CNIAttribute(step.Type))
	if listAttributes {
		// Do not use .?supportedCNIs.orValue([]), since the API server cannot bound its cost.
		supports = fmt.Sprintf(`has(device.attributes["%[1]s"].supportedCNIs) && `+
			`device.attributes["%[1]s"].supportedCNIs.includes(%[2]q)`,
			policyapi.AttributeDomain, step.Type)
	}
	conditions := append([]string{isOurDriver, supports}, needs(step, needsInterface)...)
	if step.Selector != nil {
		conditions = append(conditions, "("+closable(complete(step.Selector.CEL))+")")
	}
	return strings.Join(conditions, " && ")
}

// needs returns conditions for properties that a step needs but that not every device has. Without these conditions,
// the scheduler could allocate a device without the properties, and Prepare would reject the claim on every attempt.
// needsInterface is false for steps that attach no interface, and for external components, which decide for themselves
// which devices they can attach.
func needs(step *v1alpha1.Step, needsInterface bool) []string {
	attributes := fmt.Sprintf("device.attributes[%q]", policyapi.AttributeDomain)
	var conditions []string
	if step.RDMA != nil {
		// Every device publishes both attributes. A VLAN uses the RDMA devices of its parent.
		conditions = append(conditions, "("+attributes+".rdma || "+attributes+`.type == "vlan")`)
	}
	switch {
	case step.Driver != "":
		conditions = append(conditions, "has("+attributes+".pciAddress)")
	case needsInterface:
		// Only a device that has an interface has an MTU. Earlier versions of the driver, which run on some nodes
		// during an upgrade, publish a device's MTU but not its interface.
		conditions = append(conditions, "has("+attributes+".mtu)")
	}
	return conditions
}

// complete returns a step's expression as it appears in a class, with guards for missing attributes. If guards cannot
// be added, complete returns the expression unchanged, since the controller rejects such an expression.
func complete(expression string) string {
	guarded, err := policy.ClassExpression(expression)
	if err != nil {
		return expression
	}
	return guarded
}

// Remarks returns a remark for each attribute that is probably misspelled in a selector of a valid topology. The class
// generated from such a selector selects no devices.
func Remarks(topology *v1alpha1.NetworkTopology) []string {
	var remarks []string
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		if len(step.DependOn) > 0 || step.Selector == nil {
			continue
		}
		for _, remark := range policy.ClassRemarks(step.Selector.CEL) {
			remarks = append(remarks, fmt.Sprintf("selector of step %s: %s", step.Name, remark))
		}
	}
	return remarks
}

// Plugin returns the name of the CNI plugin that a generated class requires. This is the name of the plugin's attribute
// (host_device for host-device), or the plugin's own name if the class uses list attributes. Plugin returns "" for
// classes that were not generated.
func Plugin(class *resourceapi.DeviceClass) string {
	wants := regexp.MustCompile(`^` + regexp.QuoteMeta(isOurDriver+" && ") +
		`(?:[^&|]*\.\?(\w+)\.orValue\(false\)|has\([^&|]*\) && [^&|]*\.includes\("([^"]+)"\))`)
	if len(class.Spec.Selectors) == 0 || class.Spec.Selectors[0].CEL == nil {
		return ""
	}
	match := wants.FindStringSubmatch(class.Spec.Selectors[0].CEL.Expression)
	if match == nil {
		return ""
	}
	return match[1] + match[2]
}

// closable returns the expression in a form that can be followed by a closing bracket: it adds a newline if the
// expression may end in a comment.
func closable(expression string) string {
	expression = strings.TrimSpace(expression)
	if strings.Contains(expression, "//") {
		return expression + "\n"
	}
	return expression
}

func parameters(topology, step string) []byte {
	raw, err := json.Marshal(v1alpha1.Parameters{
		APIVersion:         v1alpha1.GroupVersion().String(),
		Kind:               v1alpha1.ParametersKind,
		NetworkTopologyRef: v1alpha1.TopologyRef{Name: topology},
		Step:               step,
	})
	if err != nil {
		panic(fmt.Sprintf("strings cannot be written as JSON: %v", err)) // impossible: the type only contains strings
	}
	return raw
}
