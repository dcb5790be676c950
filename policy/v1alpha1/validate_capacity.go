package v1alpha1

import (
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bandwidth is the counter, in Mbit/s, that may have a request policy even on exclusive devices.
const Bandwidth = "bandwidth"

// amounts checks that every amount can be used in calculations. Kubernetes accepts "1e1000000000" as a quantity, but
// comparing it would exhaust all memory. For the same reason, out-of-range amounts are not printed.
func (p *problems) amounts(e *Exposure, path *field.Path) bool {
	before := len(p.list)
	check := func(a *Amount, location *field.Path) {
		if a != nil && !a.inRange() {
			p.add(field.Forbidden(location, "an amount must be from 0 to 2^63-1: write a number in this range, "+
				"without sign and exponent"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Capacity)) {
		capacity, location := e.Capacity[name], path.Child("capacity").Key(name)
		capacity.each(location, check)
		capacity.RequestPolicy.eachOfRange(location.Child("requestPolicy"), check)
	}
	e.LinkBandwidth.each(path.Child("linkBandwidth"), check)
	e.LinkBandwidth.eachOfRange(path.Child("linkBandwidth"), check)
	for i, plugin := range e.SupportedCNIPlugins {
		consumed := path.Child("supportedCNIPlugins").Index(i).Child("consumePerAllocation")
		for _, counter := range slices.Sorted(maps.Keys(plugin.ConsumePerAllocation)) {
			check(new(plugin.ConsumePerAllocation[counter]), consumed.Key(counter))
		}
	}
	return len(p.list) == before
}

// each calls check for a counter's amounts, except those in a range.
func (c *Capacity) each(path *field.Path, check func(*Amount, *field.Path)) {
	check(&c.Value, path.Child("value"))
	c.RequestPolicy.each(path.Child("requestPolicy"), check)
}

// each calls check for the amounts in a request policy, except those in its range. The request policy may be nil.
func (r *RequestPolicy) each(path *field.Path, check func(*Amount, *field.Path)) {
	if r == nil {
		return
	}
	check(r.Default, path.Child("default"))
	for i := range r.ValidValues {
		check(&r.ValidValues[i], path.Child("validValues").Index(i))
	}
}

// eachOfRange calls check for the amounts in the request policy's range, if it has one.
func (r *RequestPolicy) eachOfRange(path *field.Path, check func(*Amount, *field.Path)) {
	if r == nil || r.ValidRange == nil {
		return
	}
	allowed := path.Child("validRange")
	check(r.ValidRange.Min, allowed.Child("min"))
	check(r.ValidRange.Max, allowed.Child("max"))
	check(r.ValidRange.Step, allowed.Child("step"))
}

// inRange reports whether an amount is between 0 and 2^63-1. It checks the exponent before it does any arithmetic.
func (a *Amount) inRange() bool {
	const digits = 40 // limit for the exponent and the number, far beyond the range
	q := a.DeepCopy().Quantity
	decimal := q.AsDec()
	if decimal.Scale() < -digits || decimal.Scale() > digits || decimal.UnscaledBig().BitLen() > 4*digits {
		return false
	}
	return q.Sign() >= 0 && q.CmpInt64(math.MaxInt64) <= 0
}

// capacities checks the counters in an exposure against the rules for ResourceSlices.
func (p *problems) capacities(e *Exposure, path *field.Path) {
	p.tooMany(path, len(e.Capacity), maxEntries)
	for _, name := range slices.Sorted(maps.Keys(e.Capacity)) {
		capacity, location := e.Capacity[name], path.Key(name)
		if !isID(name) {
			p.invalid(location, name, "the name of a counter must be letters, digits and '_', start with a letter or "+
				"'_', and have at most 32 characters")
		}
		if isYAMLBool(name) {
			p.invalid(location, name, "the name of a counter must not be true, false, yes or no: YAML reads y, n, on "+
				"and off as these; choose another name")
		}
		if capacity.Value.Sign() <= 0 {
			p.invalid(location.Child("value"), capacity.Value.String(),
				"must be greater than zero: raise it, or remove the counter")
		}
		request := location.Child("requestPolicy")
		switch {
		case capacity.RequestPolicy == nil:
		case !e.AllowMultipleAllocations && name != Bandwidth:
			p.add(field.Forbidden(request, "the device is exclusive, so a claim takes all of it: remove requestPolicy, or "+
				"set allowMultipleAllocations to true"))
		default:
			p.requestPolicy(capacity.RequestPolicy, capacity.Value, request)
		}
	}
	if bandwidth, ok := e.Capacity[Bandwidth]; ok && !e.AllowMultipleAllocations {
		// For an exclusive device, each amount becomes part of an entry's name or is consumed from a counter.
		bandwidth.each(path.Key(Bandwidth), func(q *Amount, location *field.Path) {
			if q != nil && (q.Sign() == 0 && q != &bandwidth.Value || !isWhole(q)) { // zero already has an error
				p.invalid(location, q.String(), "is in Mbit/s: write a whole number greater than zero")
			}
		})
	}
}

func (p *problems) linkBandwidth(e *Exposure, path *field.Path) {
	r := e.LinkBandwidth
	if r == nil {
		return
	}
	if e.AllowMultipleAllocations {
		p.add(field.Forbidden(path, "it is for virtual functions that are not shared: remove it, or set "+
			"allowMultipleAllocations to false"))
	}
	if _, fixed := e.Capacity[Bandwidth]; fixed {
		p.add(field.Forbidden(path, "claims choose an amount of the link, which capacity[bandwidth] fixes: remove one "+
			"of them"))
	}
	if r.Default == nil && r.ValidRange == nil && len(r.ValidValues) == 0 { // otherwise reported by requestPolicy
		p.add(field.Required(path.Child("default"), "set the amount for claims that request none"))
	}
	p.requestPolicy(r, Amount{Quantity: *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)}, path)
	whole := func(q *Amount, location *field.Path) {
		if q != nil && (q.Sign() == 0 || !isWhole(q)) {
			p.invalid(location, q.String(), "is in Mbit/s: write a whole number greater than zero")
		}
	}
	r.each(path, whole)
	r.eachOfRange(path, whole)
}

// isYAMLBool reports whether a name may result from parsing an unquoted YAML key such as n, or would be parsed as a
// boolean if it were not quoted.
func isYAMLBool(name string) bool {
	return slices.Contains([]string{"true", "false", "yes", "no"}, strings.ToLower(name))
}

// requestPolicy checks the amounts that a claim may take from a counter with the given value.
func (p *problems) requestPolicy(r *RequestPolicy, value Amount, path *field.Path) {
	before := len(p.list)
	if r.ValidRange != nil && len(r.ValidValues) > 0 {
		p.add(field.Forbidden(path, "validRange and validValues exclude each other: keep one"))
		return
	}
	if r.ValidRange != nil {
		p.validRange(r.ValidRange, value, path.Child("validRange"))
	}
	p.validValues(r.ValidValues, value, path.Child("validValues"))
	switch {
	case r.Default == nil && (r.ValidRange != nil || len(r.ValidValues) > 0):
		p.add(field.Required(path.Child("default"), "a request policy with validRange or validValues needs a default"))
	case r.Default != nil && len(p.list) == before: // the default cannot be checked against an invalid range
		p.defaultAmount(r, value, path.Child("default"))
	}
}

// defaultAmount checks the default in an otherwise valid request policy.
func (p *problems) defaultAmount(policy *RequestPolicy, value Amount, path *field.Path) {
	d := *policy.Default
	if d.Cmp(value.Quantity) > 0 {
		p.invalid(path, d.String(), "is greater than the counter's value %s, so no claim could be satisfied: lower it",
			&value)
	}
	if len(policy.ValidValues) > 0 &&
		!slices.ContainsFunc(policy.ValidValues, func(v Amount) bool { return v.Cmp(d.Quantity) == 0 }) {
		p.invalid(path, d.String(), "must be one of validValues: add it there, or choose one of them")
	}
	r := policy.ValidRange
	if r == nil || r.Min == nil {
		return
	}
	if d.Cmp(r.Min.Quantity) < 0 {
		p.invalid(path, d.String(), "is less than validRange.min %s: raise it, or lower min", r.Min)
	}
	if r.Max != nil && d.Cmp(r.Max.Quantity) > 0 {
		p.invalid(path, d.String(), "is greater than validRange.max %s: lower it, or raise max", r.Max)
	}
	p.onStep(d, r, path)
}

func (p *problems) validRange(r *ValidRange, value Amount, path *field.Path) {
	before := len(p.list)
	if r.Min == nil {
		p.add(field.Required(path.Child("min"), "a range needs a minimum: set min, for example 1"))
		return
	}
	if r.Min.Cmp(value.Quantity) > 0 {
		p.invalid(path.Child("min"), r.Min.String(), "is greater than the counter's value %s: lower it", &value)
	}
	if r.Max != nil {
		if r.Max.Cmp(r.Min.Quantity) < 0 {
			p.invalid(path.Child("max"), r.Max.String(), "is less than min %s: raise it, or lower min", r.Min)
		}
		if r.Max.Cmp(value.Quantity) > 0 {
			p.invalid(path.Child("max"), r.Max.String(), "is greater than the counter's value %s: lower it, or remove it",
				&value)
		}
	}
	if r.Step == nil || len(p.list) > before {
		return
	}
	if r.Step.Sign() <= 0 {
		p.invalid(path.Child("step"), r.Step.String(), "must be greater than zero: remove it to accept every amount")
		return
	}
	smallest := r.Min.DeepCopy()
	smallest.Add(r.Step.Quantity)
	if smallest.Cmp(value.Quantity) > 0 {
		p.invalid(path.Child("step"), r.Step.String(), "min and one step are %s, more than the counter's value %s: "+
			"lower the step, or remove it", smallest, &value)
	}
	if r.Max != nil {
		p.onStep(*r.Max, r, path.Child("max"))
	}
}

// onStep checks that an amount is a whole number of steps above the range's min.
func (p *problems) onStep(amount Amount, r *ValidRange, path *field.Path) {
	if r.Step == nil || r.Step.Sign() <= 0 {
		return
	}
	for _, q := range []*Amount{&amount, r.Min, r.Step} {
		if !isWhole(q) {
			p.invalid(path, q.String(), "must be a whole number if step is set: round it, or remove the step")
			return
		}
	}
	if (amount.Value()-r.Min.Value())%r.Step.Value() != 0 {
		p.invalid(path, amount.String(), "must be min %s plus a whole number of steps of %s", r.Min, r.Step)
	}
}

// isWhole reports whether an amount is a whole number. It relies on Value, which rounds up.
func isWhole(a *Amount) bool {
	return a.CmpInt64(a.Value()) == 0
}

func (p *problems) validValues(values []Amount, value Amount, path *field.Path) {
	p.tooMany(path, len(values), maxValidValues)
	for i, v := range values {
		if v.Cmp(value.Quantity) > 0 {
			p.invalid(path.Index(i), v.String(), "is greater than the counter's value %s: remove it", &value)
		}
		if i > 0 && v.Cmp(values[i-1].Quantity) <= 0 {
			p.invalid(path.Index(i), v.String(), "must be greater than the previous value: sort validValues and "+
				"remove duplicates")
		}
	}
}
