package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// resourceNameField is the exposure field that sets the attributes for Multus.
const resourceNameField = "resourceName"

type policyAttributes struct {
	values AttributeMap
	// sources lists the sources of the attributes. Once complete, it is sorted by name.
	sources []AttributeSource
}

// set adds an attribute that the device has.
func (a *policyAttributes) set(name, source string, value resourceapi.DeviceAttribute) {
	qualified := resourceapi.QualifiedName(v1alpha1.QualifiedName(name))
	a.values[qualified] = value
	a.sources = append(a.sources, AttributeSource{Name: qualified, Source: source})
}

// miss records an attribute that the device does not have.
func (a *policyAttributes) miss(name, source, reason string) {
	qualified := resourceapi.QualifiedName(v1alpha1.QualifiedName(name))
	a.sources = append(a.sources, AttributeSource{Name: qualified, Source: source, Absent: reason})
}

// attributeRules contains a policy's attributes, prepared for a node, along with the evaluation state.
type attributeRules struct {
	prepared bool
	// table maps PCI addresses to attributes; tableNames contains the attribute names from all rows, sorted.
	table      map[string]map[string]v1alpha1.AttributeValue
	tableNames []string
	// computed contains the computed attributes in policy order.
	computed []computedRule
	// budget is the limit for the total cost of all evaluations; spent is the cost so far.
	budget, spent uint64
}

type computedRule struct {
	name       string
	expression selector
	// broken is the error if the expression could not be compiled.
	broken error
	// failures is the number of devices that the expression failed on. failedOn is the first of these devices, and
	// failure is the error for it.
	failures int
	failedOn discovery.IfName
	failure  error
}

// shareAttributeCost divides the cost limit for computed attributes among the policies that have any, just as evaluate
// does for selectors: all policies share readingCost, but each expression is granted at least evaluationShare for every
// device.
//
// Exclude policies are not counted, since they do not add attributes.
func shareAttributeCost(rules []*rule, devices int) {
	asking := 0
	for _, r := range rules {
		if r.hasSelectorToEvaluate() && !r.excludes() && len(r.policy.Spec.Exposure.ComputedAttributes) > 0 {
			asking++
		}
	}
	for _, r := range rules {
		if e := r.policy.Spec.Exposure; e != nil {
			r.attributes.budget = max(readingCost/uint64(max(asking, 1)),
				evaluationShare*uint64(devices)*uint64(len(e.ComputedAttributes)))
		}
	}
}

// prepare compiles the expressions and indexes the table on the first call. It is only called for policies that define
// a device's entries.
func (a *attributeRules) prepare(e *v1alpha1.Exposure, kept *expressions) {
	if a.prepared {
		return
	}
	a.prepared = true
	a.table = make(map[string]map[string]v1alpha1.AttributeValue, len(e.AttributesByPCIAddress))
	for _, row := range e.AttributesByPCIAddress {
		a.table[row.PCIAddress] = row.Attributes
		for name := range row.Attributes {
			a.tableNames = append(a.tableNames, name)
		}
	}
	slices.Sort(a.tableNames)
	a.tableNames = slices.Compact(a.tableNames)
	for _, computed := range e.ComputedAttributes {
		expression, err := kept.compile(computed.CEL, forAttribute)
		a.computed = append(a.computed, computedRule{name: computed.Name, expression: expression, broken: err})
	}
}

// attributesOf returns the attributes that a valid expose policy adds to a device. If an attribute fails, only that
// attribute is omitted; a claim that requires it is allocated a different device.
func (r *rule) attributesOf(d *discovery.Device) policyAttributes {
	e := r.policy.Spec.Exposure
	r.attributes.prepare(e, r.expressions)
	result := policyAttributes{values: AttributeMap{}}
	if e.ResourceName != "" {
		result.set(v1alpha1.AttributeResourceName, resourceNameField,
			resourceapi.DeviceAttribute{StringValue: &e.ResourceName})
		if id := cmp.Or(string(d.PCIAddress), string(d.Interface)); id != "" {
			result.set(v1alpha1.AttributeDeviceID, resourceNameField, resourceapi.DeviceAttribute{StringValue: &id})
		} else {
			result.miss(v1alpha1.AttributeDeviceID, resourceNameField, "the device has no PCI address and no interface")
		}
	}
	for name, value := range e.AdditionalAttributes {
		result.set(name, "additionalAttributes", fixedAttribute(value))
	}
	r.attributes.lookUp(d, &result)
	r.attributes.compute(d, &result)
	slices.SortFunc(result.sources, func(a, b AttributeSource) int { return cmp.Compare(a.Name, b.Name) })
	return result
}

func fixedAttribute(v v1alpha1.AttributeValue) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: v.String, IntValue: v.Int, BoolValue: v.Bool}
}

// lookUp adds the attributes from the device's row in the table or, if the device has no row, from the row for its
// physical function. Rows are never merged: a virtual function with its own row does not get attributes from another
// row.
func (a *attributeRules) lookUp(d *discovery.Device, result *policyAttributes) {
	if len(a.table) == 0 {
		return
	}
	address := string(d.PCIAddress)
	row, found := a.table[address]
	if !found && d.PFAddress != "" {
		address = string(d.PFAddress)
		row, found = a.table[address]
	}
	source := "attributesByPCIAddress"
	if found {
		source += "[" + address + "]"
	}
	for _, name := range a.tableNames {
		value, has := row[name]
		switch {
		case has:
			result.set(name, source, fixedAttribute(value))
		case found:
			result.miss(name, source, "the row does not contain it")
		case d.PCIAddress == "":
			result.miss(name, source, "the device has no PCI address")
		default:
			result.miss(name, source, noRow(d))
		}
	}
}

// noRow explains that the table has no row for a device, listing the addresses that a matching row could have.
func noRow(d *discovery.Device) string {
	reason := "no row for " + string(d.PCIAddress)
	if d.PFAddress != "" {
		reason += " or its physical function " + string(d.PFAddress)
	}
	return reason
}

func (a *attributeRules) compute(d *discovery.Device, result *policyAttributes) {
	if len(a.computed) == 0 {
		return
	}
	device := variablesOf(d)
	for i := range a.computed {
		c := &a.computed[i]
		value, err := a.evaluate(c, device)
		switch {
		case err == nil && value != nil:
			result.set(c.name, "computedAttributes", *value)
		case err == nil:
			result.miss(c.name, "computedAttributes", "the expression has no value for the device")
		default:
			result.miss(c.name, "computedAttributes", err.Error())
			if c.failures++; c.failures == 1 {
				c.failure, c.failedOn = err, d.Name
			}
		}
	}
}

// evaluate returns the value of an attribute for a device, or nil if the expression yields no value.
func (a *attributeRules) evaluate(c *computedRule, device variables) (*resourceapi.DeviceAttribute, error) {
	switch {
	case c.broken != nil:
		return nil, c.broken
	case a.spent >= a.budget:
		return nil, fmt.Errorf("cannot evaluate the expression: the policy's expressions cost %d on other devices "+
			"of the node, and all policies share a budget of %d; simplify them, or use attributesByPCIAddress", a.spent,
			readingCost)
	}
	result, cost, err := c.expression.evaluate(device)
	a.spent += cost
	if err != nil {
		return nil, err
	}
	return attributeOf(result)
}

// attributeOf converts the result of an expression to an attribute. It returns nil if the result is empty: an empty
// string represents an absent fact and would make unrelated devices match. For example, two nodes without a switch name
// must not be treated as connected to the same switch. attributeOf returns an error for a value that is too long or not
// valid UTF-8, since the API server would reject the whole slice.
func attributeOf(value ref.Val) (*resourceapi.DeviceAttribute, error) {
	switch value := value.(type) {
	case *types.Optional:
		if !value.HasValue() {
			return nil, nil
		}
		return attributeOf(value.GetValue())
	case types.Null:
		return nil, nil
	case types.String:
		return stringAttribute(string(value))
	case types.Int:
		return &resourceapi.DeviceAttribute{IntValue: new(int64(value))}, nil
	case types.Bool:
		return &resourceapi.DeviceAttribute{BoolValue: new(bool(value))}, nil
	case apiservercel.Semver:
		version := value.String()
		if len(version) > MaxString {
			return nil, tooLong(version)
		}
		return &resourceapi.DeviceAttribute{VersionValue: &version}, nil
	}
	return nil, fmt.Errorf("the expression yields a %s, which is not an attribute type: return a string, an "+
		"integer, a boolean or a version, with string() or int() around it", value.Type().TypeName())
}

func stringAttribute(s string) (*resourceapi.DeviceAttribute, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > MaxString:
		return nil, tooLong(s)
	case !utf8.ValidString(s):
		return nil, fmt.Errorf("the expression yields %q, which is not valid UTF-8: return a valid part of it", s)
	}
	return &resourceapi.DeviceAttribute{StringValue: &s}, nil
}

func tooLong(s string) error {
	return fmt.Errorf("the expression yields %q, which has %d bytes, and the limit is %d: shorten it, for example "+
		"with substring()", s[:MaxString]+"…", len(s), MaxString)
}

// problems returns the problems with the computed attributes. It reports at most one problem per attribute, for the
// first affected device, since a policy may match hundreds of devices.
func (a *attributeRules) problems(policyName string) []Problem {
	var problems []Problem
	for _, c := range a.computed {
		name := v1alpha1.QualifiedName(c.name)
		switch {
		case c.broken != nil:
			problems = append(problems, Problem{Policy: policyName, Message: fmt.Sprintf(
				"no device has its attribute %s: %v", name, c.broken)})
		case c.failure != nil:
			message := fmt.Sprintf("is published without attribute %s: %v", name, c.failure)
			if more := c.failures - 1; more > 0 {
				message += fmt.Sprintf("; it also fails on other devices (%d)", more)
			}
			problems = append(problems, Problem{Policy: policyName, Device: string(c.failedOn), Message: message})
		}
	}
	return problems
}

// compileAttribute compiles an expression that yields an attribute value or an optional attribute value.
func compileAttribute(expression string, env environment.Type) (selector, error) {
	options := dracel.Options{EnvType: &env, DerivedAttribute: true}
	result := compileAs(expression, options)
	if result.Error != nil && yieldsOptional(expression, env) {
		// The library's compiler rejects the optional type, but accepts expressions of unknown type. The parentheses in
		// an expression that compiles are balanced, so dyn() does not change its meaning.
		result = compileAs("dyn("+expression+"\n)", options)
	}
	if result.Error != nil {
		return selector{}, compileError(result, "a string, an integer, a boolean, a version, or an optional one of these, "+
			`for example device.attributes["dra.networking"].ifName`)
	}
	return newSelector(result), nil
}

// yieldsOptional reports whether an expression compiles to an optional value of a type that is valid for attributes.
func yieldsOptional(expression string, env environment.Type) bool {
	scaffold := compileAs("true", dracel.Options{EnvType: &env})
	if scaffold.Error != nil {
		return false
	}
	compiled, issues := scaffold.Environment.Compile(expression)
	if issues.Err() != nil {
		return false
	}
	t := compiled.OutputType()
	if t.TypeName() != "optional_type" || len(t.Parameters()) != 1 {
		return false
	}
	element := t.Parameters()[0]
	return slices.ContainsFunc([]*types.Type{types.StringType, types.IntType, types.BoolType, types.AnyType,
		types.DynType, apiservercel.SemverType}, element.IsExactType)
}

// CheckAttribute returns the error in the expression for a computed attribute. The expression must yield a valid
// attribute value, must not be too expensive, and must only read discovered attributes and compare them with literals
// of the right type.
func CheckAttribute(expression string) error {
	return checkDiscovered(expression, compileAttribute)
}

func checkComputed(p *v1alpha1.DeviceExposurePolicy) field.ErrorList {
	if p.Spec.Exposure == nil {
		return nil
	}
	var errs field.ErrorList
	for i, computed := range p.Spec.Exposure.ComputedAttributes {
		if strings.TrimSpace(computed.CEL) == "" {
			continue // Validate reports the missing value
		}
		if err := CheckAttribute(computed.CEL); err != nil {
			location := field.NewPath("spec", "exposure", "computedAttributes").Index(i).Child("cel")
			errs = append(errs, field.Invalid(location, computed.CEL, strings.TrimRight(err.Error(), "\n")))
		}
	}
	return errs
}
