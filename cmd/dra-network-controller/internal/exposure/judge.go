package exposure

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Checks are what a policy must pass. Both functions are required.
type Checks struct {
	// Policy reports the problems of everything but the expression.
	Policy func(*v1alpha1.DeviceExposurePolicy) field.ErrorList
	// Selector returns what is wrong with the expression.
	Selector func(expression string) error
}

// Judge reports every problem of a policy.
func Judge(policy *v1alpha1.DeviceExposurePolicy, checks Checks) field.ErrorList {
	problems := checks.Policy(policy)
	expression := policy.Spec.Selector.CEL
	if strings.TrimSpace(expression) == "" {
		return problems // that it is missing is said with the structure
	}
	if err := checks.Selector(expression); err != nil {
		detail := fmt.Sprintf("%s; %s", strings.TrimRight(err.Error(), "\n"), untilCorrected(policy.Spec.Action))
		problems = append(problems, field.Invalid(field.NewPath("spec", "selector", "cel"), expression, detail))
	}
	return problems
}

// untilCorrected says what nodes do with a policy whose expression can't be evaluated. Neither may offer a device that
// its author wanted hidden.
func untilCorrected(action v1alpha1.Action) string {
	if action == v1alpha1.ActionExclude {
		return "until the expression is corrected, the policy hides every device of the nodes that it selects"
	}
	return "until the expression is corrected, the policy exposes nothing"
}

func summary(policy *v1alpha1.DeviceExposurePolicy) string {
	if policy.Spec.Action == v1alpha1.ActionExclude {
		return "the policy hides the devices that it selects"
	}
	return "the policy exposes the devices that it selects"
}
