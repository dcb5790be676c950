package deploy_test

import (
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// evaluation evaluates an admission policy for a request, with the API server's own compiler.
type evaluation struct {
	t          *testing.T
	policy     *admissionregistration.ValidatingAdmissionPolicy
	compiler   *plugincel.CompositedCompiler
	options    plugincel.OptionalVariableDeclarations
	attributes *admission.VersionedAttributes
	params     runtime.Object    // nil if there are none
	namespace  *corev1.Namespace // nil for cluster-scoped objects
}

func newEvaluation(
	t *testing.T, policy *admissionregistration.ValidatingAdmissionPolicy, attributes *admission.VersionedAttributes,
) *evaluation {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()),
	)
	if err != nil {
		t.Fatal(err)
	}
	e := &evaluation{t: t, policy: policy, compiler: compiler, attributes: attributes}
	e.options.HasParams = policy.Spec.ParamKind != nil
	for _, variable := range policy.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression},
			e.options, environment.NewExpressions)
	}
	return e
}

// matches reports whether the policy's conditions are met.
func (e *evaluation) matches() bool {
	var conditions []plugincel.ExpressionAccessor
	for _, condition := range e.policy.Spec.MatchConditions {
		conditions = append(conditions, &validating.ValidationCondition{Expression: condition.Expression})
	}
	for _, result := range e.evaluate(conditions) {
		if result.Error != nil || result.EvalResult.Value() != true {
			return false
		}
	}
	return true
}

// refusals returns the messages from failed validations.
func (e *evaluation) refusals() []string {
	e.t.Helper()
	var validations, messages []plugincel.ExpressionAccessor
	for _, rule := range e.policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: rule.Expression})
		expression := rule.MessageExpression
		if expression == "" {
			expression = `"` + rule.Message + `"`
		}
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: expression})
	}
	said := e.evaluate(messages)
	var refusals []string
	for i, result := range e.evaluate(validations) {
		switch {
		case result.Error != nil && *e.policy.Spec.FailurePolicy == admissionregistration.Fail:
			refusals = append(refusals, result.Error.Error())
		case result.Error != nil:
			e.t.Errorf("%s: %v", e.policy.Spec.Validations[i].Expression, result.Error)
		case result.EvalResult.Value() == true:
		case said[i].Error != nil:
			e.t.Errorf("%s: %v", e.policy.Spec.Validations[i].MessageExpression, said[i].Error)
		default:
			refusals = append(refusals, said[i].EvalResult.Value().(string))
		}
	}
	return refusals
}

func (e *evaluation) evaluate(expressions []plugincel.ExpressionAccessor) []plugincel.EvaluationResult {
	e.t.Helper()
	evaluator := e.compiler.CompileCondition(expressions, e.options, environment.NewExpressions)
	if errs := evaluator.CompilationErrors(); len(errs) > 0 {
		e.t.Fatal(errs)
	}
	a := e.attributes
	request := plugincel.CreateAdmissionRequest(a.Attributes, metav1.GroupVersionResource(a.GetResource()),
		metav1.GroupVersionKind(a.GetKind()))
	results, _, err := evaluator.ForInput(e.t.Context(), a, request,
		plugincel.OptionalVariableBindings{VersionedParams: e.params}, e.namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		e.t.Fatal(err)
	}
	return results
}
