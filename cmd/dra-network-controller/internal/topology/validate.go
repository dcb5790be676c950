package topology

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Validate returns the problems in a topology: in its structure, and in the expressions of its root steps, which
// checkSelector compiles. It returns breaches separately, because the topology may have been accepted earlier despite
// them: violations of plugin contracts, and comparisons of attributes with literals of the wrong type. If a topology
// has no problems, the API server accepts its classes, and the scheduler can evaluate them on any device.
func Validate(
	topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas, checkSelector func(string) error,
) (problems, breaches field.ErrorList) {
	// The name becomes a label value on each class. Label values are limited to fewer characters than object names.
	if size := len(topology.Name); size > validation.LabelValueMaxLength {
		problems = append(problems,
			field.TooLong(field.NewPath("metadata", "name"), topology.Name, validation.LabelValueMaxLength))
	}
	if allowed := topology.Spec.AllowedNamespaces; allowed != nil {
		if _, err := metav1.LabelSelectorAsSelector(allowed); err != nil {
			problems = append(problems, field.Invalid(field.NewPath("spec", "allowedNamespaces"), allowed, err.Error()))
		}
	}
	problems = append(problems, cnichain.ValidateStored(topology, schemas)...)
	for i := range topology.Spec.Steps {
		problems = append(problems, judgeRoot(field.NewPath("spec", "steps").Index(i), &topology.Spec.Steps[i],
			checkSelector)...)
	}
	return problems, append(cnichain.CheckContracts(topology, schemas), mismatches(topology)...)
}

// mismatches returns an error for each root step that compares an attribute with a literal of the wrong type.
func mismatches(topology *v1alpha1.NetworkTopology) field.ErrorList {
	var problems field.ErrorList
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		if !isRoot(step) || step.Selector == nil {
			continue
		}
		if err := policy.CheckTypes(step.Selector.CEL); err != nil {
			path := field.NewPath("spec", "steps").Index(i).Child("selector", "cel")
			problems = append(problems, field.Invalid(path, step.Selector.CEL, err.Error()))
		}
	}
	return problems
}

// judgeRoot checks the fields of a root step from which its class is built. The plugin's name becomes the name of a
// device attribute, which must be a C identifier of at most 32 characters. With any other name, no device could match,
// and a pod that uses the class would never be scheduled.
func judgeRoot(path *field.Path, step *v1alpha1.Step, checkSelector func(string) error) field.ErrorList {
	if !isRoot(step) {
		return nil
	}
	var problems field.ErrorList
	if attribute := policyapi.CNIAttribute(step.Type); step.Type != "" &&
		(len(validation.IsCIdentifier(attribute)) > 0 || len(attribute) > resourceapi.DeviceMaxIDLength) {
		problems = append(problems, field.Invalid(path.Child("type"), step.Type,
			"no device can advertise this plugin: the name of a device attribute must start with a letter and have at "+
				"most 32 characters; install the plugin under another name"))
	}
	if step.Selector == nil || strings.TrimSpace(step.Selector.CEL) == "" {
		return problems // the structural check reports a missing selector
	}
	if err := checkSelector(step.Selector.CEL); err != nil {
		problems = append(problems, field.Invalid(path.Child("selector", "cel"), step.Selector.CEL, err.Error()))
	}
	return problems
}

func isRoot(step *v1alpha1.Step) bool { return len(step.DependOn) == 0 }
