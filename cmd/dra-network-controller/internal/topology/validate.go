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

// Validate reports every problem of a topology: its structure and the expressions of its root steps, which
// checkSelector compiles; and, apart from them, where it breaks the contracts of its plugins or compares attributes
// with what they can't be, which may have been accepted before. The classes of a topology without problems are ones
// that the API server takes and the scheduler can evaluate on any device.
func Validate(
	topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas, checkSelector func(string) error,
) (problems, breaches field.ErrorList) {
	// The name becomes the value of a label on each class, and such values are shorter than names of objects.
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

// mismatches are the comparisons of root steps with literals of a type that the attribute doesn't have.
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

// judgeRoot checks what classes are made of. The plugin's name becomes the name of a device attribute, which must be a
// C identifier of at most 32 characters: no device could have another, so no pod with the class would ever be
// scheduled.
func judgeRoot(path *field.Path, step *v1alpha1.Step, checkSelector func(string) error) field.ErrorList {
	if !isRoot(step) {
		return nil
	}
	var problems field.ErrorList
	if attribute := policyapi.CNIAttribute(step.Type); step.Type != "" &&
		(len(validation.IsCIdentifier(attribute)) > 0 || len(attribute) > resourceapi.DeviceMaxIDLength) {
		problems = append(problems, field.Invalid(path.Child("type"), step.Type,
			"no device can say that it supports this plugin, since the name of a device attribute starts with a "+
				"letter and has at most 32 characters: install the plugin under another name"))
	}
	if step.Selector == nil || strings.TrimSpace(step.Selector.CEL) == "" {
		return problems // that it is missing is said with the structure
	}
	if err := checkSelector(step.Selector.CEL); err != nil {
		problems = append(problems, field.Invalid(path.Child("selector", "cel"), step.Selector.CEL, err.Error()))
	}
	return problems
}

func isRoot(step *v1alpha1.Step) bool { return len(step.DependOn) == 0 }
