package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

type selector struct {
	result dracel.CompilationResult
	// walked returns the cached result of walk for the expression. It never fails, since the expression compiles.
	walked func() (*walker, error)
}

func newSelector(result dracel.CompilationResult) selector {
	return selector{result, sync.OnceValues(func() (*walker, error) { return walk(result) })}
}

// evaluationCost is the cost limit for a single evaluation of a policy's expression. For a class expression, Kubernetes
// allows a hundred times as much per device, but policies are evaluated for every device on every change.
const evaluationCost = resourceapi.CELSelectorExpressionMaxCost / 100

// compiler compiles an expression for one purpose.
type compiler func(expression string, env environment.Type) (selector, error)

// walkStored compiles a stored expression and returns the result of walk.
func walkStored(expression string, compile compiler) (*walker, error) {
	s, err := compile(expression, environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	return s.walked()
}

// compile compiles a selector expression. New expressions may only use features of the oldest supported API server;
// stored expressions may also use newer features.
//
// Validation treats expressions as new, so that users cannot store an expression that an older API server or node
// cannot compile. Nodes treat expressions as stored, since an expression that has been accepted must continue to work
// with an older driver.
func compile(expression string, env environment.Type) (selector, error) {
	result := compileAs(expression, dracel.Options{EnvType: &env})
	if result.Error != nil {
		return selector{}, compileError(result, `true or false, for example device.attributes["dra.networking"].type == `+
			`"bridge"`)
	}
	return newSelector(result), nil
}

func compileError(result dracel.CompilationResult, want string) error {
	return fmt.Errorf("cannot compile the expression: %s; it must be a CEL expression over one device that yields %s",
		result.Error.Detail, want)
}

// compileAs compiles an expression with the cost limit that applies to all expressions in policies. The cost is only
// estimated for new expressions, which can still be rejected; nodes count the actual cost of evaluations.
func compileAs(expression string, options dracel.Options) dracel.CompilationResult {
	options.CostLimit = new(uint64(evaluationCost))
	options.DisableCostEstimation = *options.EnvType == environment.StoredExpressions
	return dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, options)
}

func (s selector) matches(device variables) (matches bool, cost uint64, err error) {
	result, cost, err := s.evaluate(device)
	if _, isBool := result.(types.Bool); err == nil && !isBool {
		// The compiler accepts a bare attribute, since it does not know the attribute's type. Return an error in this
		// case: in an exclude policy, an error hides the device, whereas "no match" would offer it.
		err = fmt.Errorf("cannot evaluate the expression: it returns %v (%s) instead of true or false", result.Value(),
			result.Type().TypeName())
	}
	return result == types.True, cost, err
}

// evaluate returns the result of the expression for a device, and the cost of the evaluation.
func (s selector) evaluate(device variables) (result ref.Val, cost uint64, err error) {
	result, details, err := s.result.Program.Eval(map[string]any(device))
	cost = evaluationCost // used if the environment does not report a cost
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if err != nil {
		return nil, cost, fmt.Errorf("cannot evaluate the expression: %w", dracel.EnhanceRuntimeError(err))
	}
	return result, cost, nil
}

// CheckSelector returns the error in a policy's expression. The expression must compile to a boolean, must not be too
// expensive, and must only read the driver's attributes and compare them with literals of the right type.
func CheckSelector(expression string) error {
	return errors.Join(checkDiscovered(expression, compile), checkYields(expression))
}

// checkDiscovered returns the error in an expression that may only read discovered attributes.
func checkDiscovered(expression string, compile compiler) error {
	accesses, err := check(expression, compile)
	if err != nil {
		return err
	}
	known := Attributes(discovery.Device{})
	var errs []error
	for _, a := range accesses {
		if _, ok := known[a.qualifiedName()]; !ok || a.capacity || a.computed {
			errs = append(errs, a.unknown())
		}
	}
	return errors.Join(append(errs, checkTypes(expression, compile))...)
}

// classConditions is the maximum length, in bytes, of the conditions that a class adds in front of the expression from
// the topology.
const classConditions = 256

// CheckClassSelector returns the error in an expression for a device class. It performs the same compilation and cost
// checks as CheckSelector, and rejects unguarded accesses for which ClassExpression does not add a guard: accesses to
// capacities, to attributes that policies add, and to attributes that are only published on request.
func CheckClassSelector(expression string) error {
	if _, err := check(expression, compile); err != nil {
		return err
	}
	complete, err := ClassExpression(expression)
	if err != nil {
		return err
	}
	if limit := resourceapi.CELSelectorExpressionMaxLength - classConditions; len(complete) > limit {
		return fmt.Errorf("the expression has %d bytes with the guards of a DeviceClass, and the limit is %d; read "+
			"each attribute once, as in cel.bind(m, %s, m == 1500 || m == 9000)", len(complete), limit,
			access{domain: v1alpha1.AttributeDomain, id: "mtu"}.field("."))
	}
	accesses, err := check(complete, compile)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range accesses {
		if a.capacity || a.computed || publicationOf(a) != always {
			errs = append(errs, a.unguarded())
		}
	}
	return errors.Join(errs...)
}

// check compiles an expression, checks its cost, and returns its unguarded accesses.
func check(expression string, compile compiler) ([]access, error) {
	if len(expression) > resourceapi.CELSelectorExpressionMaxLength {
		return nil, fmt.Errorf("the expression has %d bytes, the limit is %d; shorten it", len(expression),
			resourceapi.CELSelectorExpressionMaxLength)
	}
	s, err := compile(expression, environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	if s.result.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		return nil, fmt.Errorf("the expression may cost %d, and the limit is %d; compare whole values with == or "+
			"in, and guard with has() rather than orValue() before contains(), matches() or exists()", s.result.MaxCost,
			resourceapi.CELSelectorExpressionMaxCost)
	}
	w, err := s.walked()
	if err != nil {
		return nil, err
	}
	return w.list, nil
}

func (a access) qualifiedName() resourceapi.QualifiedName {
	return resourceapi.QualifiedName(a.domain + "/" + a.id)
}

// field returns the access as written in an expression; op is "." or ".?".
func (a access) field(op string) string {
	section := "attributes"
	if a.capacity {
		section = "capacity"
	}
	return fmt.Sprintf("device.%s[%q]%s%s", section, a.domain, op, a.id)
}

// errComputedName is the error for an expression with a computed attribute name: the name is only known during
// evaluation, so the presence of the attribute cannot be checked beforehand.
var errComputedName = errors.New("cannot check the selector: an attribute name is computed, as in " +
	"attributes[…][x]; write a literal, for example " + access{domain: v1alpha1.AttributeDomain, id: "type"}.field("."))

// unknown returns the error for a policy's expression that accesses an attribute or capacity that no device has.
func (a access) unknown() error {
	switch {
	case a.computed:
		return errComputedName
	case a.capacity:
		return fmt.Errorf("the expression reads %s, but a policy selects devices by discovered attributes, which have "+
			"no capacity; use device.attributes", a.field("."))
	}
	if near := nearestField(a.id); near != "" {
		return a.misspelt("", near)
	}
	unless := ""
	if a.domain != v1alpha1.AttributeDomain {
		unless = " unless a file on its node sets it"
	}
	return fmt.Errorf("no device has an attribute %s%s; remove it from the expression, or guard it with has(%s) &&",
		a.qualifiedName(), unless, a.field("."))
}

// misspelt returns the error for an access to an attribute whose name is probably misspelled. unless is the condition
// under which devices would have the attribute.
func (a access) misspelt(unless, near string) error {
	return fmt.Errorf("no device has an attribute %s%s: did you mean %s?", a.qualifiedName(), unless, near)
}

// ClassRemarks returns remarks about attribute names that are probably misspelled in a valid class expression.
// CheckClassSelector accepts guarded accesses to such attributes, since a policy may add an attribute with any name.
func ClassRemarks(expression string) []string {
	w, err := walkStored(expression, compile)
	if err != nil {
		return nil // other checks report it
	}
	var remarks []string
	for _, a := range w.mentioned {
		near := a.suggestion()
		if near == "" {
			continue
		}
		if remark := a.misspelt(" unless a policy adds it", near).Error(); !slices.Contains(remarks, remark) {
			remarks = append(remarks, remark)
		}
	}
	return remarks
}

// suggestion returns the attribute that the author probably meant, in expression syntax, or "" if there is none. It
// makes no suggestions for other domains, where policies may add attributes.
func (a access) suggestion() string {
	if _, known := Attributes(discovery.Device{})[a.qualifiedName()]; known || a.capacity || a.computed ||
		a.domain != v1alpha1.AttributeDomain {
		return ""
	}
	return nearestField(a.id)
}

// unguarded returns the error for a class expression that accesses, without a guard, an attribute that a device may not
// have.
func (a access) unguarded() error {
	if a.computed {
		return errComputedName
	}
	guard := fmt.Sprintf("write has(%s) && before it", a.field("."))
	if absent, ok := absentLiteral(a); ok {
		guard = fmt.Sprintf("write %s.orValue(%s) instead, or has(%s) && before it", a.field(".?"), absent,
			a.field("."))
	}
	if near := a.suggestion(); near != "" {
		return fmt.Errorf("%w If a policy adds it, %s", a.misspelt("", near), guard)
	}
	condition := ""
	if publicationOf(a) == onRequest {
		condition = fmt.Sprintf(" (only one whose policy has publish: [%s])", a.id)
	}
	return fmt.Errorf("the expression reads %s, which some devices lack%s; the scheduler fails on these devices "+
		"and does not schedule the pod: %s", a.field("."), condition, guard)
}

// absentLiteral returns the CEL literal that represents the absence of an attribute in the vocabulary.
func absentLiteral(a access) (string, bool) {
	if a.capacity {
		return "", false
	}
	if a.domain == v1alpha1.CNIDomain {
		return "false", true
	}
	absent := discovery.Device{NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None}
	value, ok := Attributes(absent)[a.qualifiedName()]
	switch {
	case !ok:
		return "", false
	case value.IntValue != nil:
		return fmt.Sprint(*value.IntValue), true
	case value.BoolValue != nil:
		return "false", true
	}
	return `""`, true
}

// nearestField returns the attribute in the vocabulary whose name is most similar to id, or "" if no name is similar.
// The driver's own domain takes precedence, because it is searched first. For example, nearestField returns the
// attribute mtu for mtuu, and vendor for vendr.
func nearestField(id string) string {
	var all []access
	var ids []string
	for _, known := range discovered(&discovery.Device{}) {
		domain, name, _ := strings.Cut(string(known.name), "/")
		all, ids = append(all, access{domain: domain, id: name}), append(ids, name)
	}
	if i := nearest.Index(id, ids); i >= 0 {
		return all[i].field(".")
	}
	return ""
}
