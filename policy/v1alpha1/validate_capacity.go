package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bandwidth is the counter that may have a request policy on exclusive devices. It is in Mbit/s.
const Bandwidth = "bandwidth"

// validateAmounts checks that every amount can be used in calculations: Kubernetes accepts "1e1000000000" as a
// quantity, and comparing it would take all memory. For the same reason, amounts out of range are not printed.
func validateAmounts(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(a *Amount, location *field.Path) {
		if a != nil && !a.inRange() {
			errs = append(errs,
				field.Forbidden(location, "an amount must be from 0 to 2^63-1: write a number in this range, without "+
					"sign and exponent"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Capacity)) {
		capacity, location := e.Capacity[name], path.Child("capacity").Key(name)
		check(&capacity.Value, location.Child("value"))
		r, request := capacity.RequestPolicy, location.Child("requestPolicy")
		if r == nil {
			continue
		}
		check(r.Default, request.Child("default"))
		for i := range r.ValidValues {
			check(&r.ValidValues[i], request.Child("validValues").Index(i))
		}
		if r.ValidRange != nil {
			check(r.ValidRange.Min, request.Child("validRange", "min"))
			check(r.ValidRange.Max, request.Child("validRange", "max"))
			check(r.ValidRange.Step, request.Child("validRange", "step"))
		}
	}
	for i, p := range e.SupportedCNIPlugins {
		for _, counter := range slices.Sorted(maps.Keys(p.ConsumePerAllocation)) {
			amount := p.ConsumePerAllocation[counter]
			check(&amount, path.Child("supportedCNIPlugins").Index(i).Child("consumePerAllocation").Key(counter))
		}
	}
	return errs
}

// inRange reports whether an amount is from 0 to 2^63-1. It looks at the exponent before it does arithmetic.
func (a *Amount) inRange() bool {
	const digits = 40 // of exponent and of number, far more than the range needs
	q := a.DeepCopy().Quantity
	decimal := q.AsDec()
	if decimal.Scale() < -digits || decimal.Scale() > digits || decimal.UnscaledBig().BitLen() > 4*digits {
		return false
	}
	return q.Sign() >= 0 && q.CmpInt64(math.MaxInt64) <= 0
}

// validateCapacities checks the counters of an exposure by the rules of the ResourceSlice API.
func validateCapacities(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(e.Capacity) > maxEntries {
		errs = append(errs, field.TooMany(path, len(e.Capacity), maxEntries))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Capacity)) {
		capacity, location := e.Capacity[name], path.Key(name)
		if !isID(name) {
			errs = append(errs, field.Invalid(location, name,
				"the name of a counter must be letters, digits and '_', start with a letter or '_', and have at most "+
					"32 characters"))
		}
		if isYAMLBool(name) {
			errs = append(errs, field.Invalid(location, name,
				"the name of a counter must not be true, false, yes or no: YAML reads y, n, on and off as these; "+
					"choose another name"))
		}
		if capacity.Value.Sign() <= 0 {
			errs = append(errs,
				field.Invalid(location.Child("value"), capacity.Value.String(),
					"must be greater than zero: raise it, or remove the counter"))
		}
		if capacity.RequestPolicy == nil {
			continue
		}
		if !e.AllowMultipleAllocations && name != Bandwidth {
			errs = append(errs, field.Forbidden(location.Child("requestPolicy"),
				"the device is exclusive, so a claim takes all of it: remove requestPolicy, or set "+
					"allowMultipleAllocations to true"))
			continue
		}
		errs = append(errs,
			validateRequestPolicy(capacity.RequestPolicy, capacity.Value, location.Child("requestPolicy"))...)
	}
	if bandwidth, ok := e.Capacity[Bandwidth]; ok && !e.AllowMultipleAllocations {
		errs = append(errs, validateBandwidth(bandwidth, path.Key(Bandwidth))...)
	}
	return errs
}

// isYAMLBool reports whether a name is what YAML makes of a key such as n, or would make a boolean of unless it is
// quoted.
func isYAMLBool(name string) bool {
	return slices.Contains([]string{"true", "false", "yes", "no"}, strings.ToLower(name))
}

// validateBandwidth checks the bandwidth amounts of an exclusive device: each is part of the name of an entry or
// consumed from a counter.
func validateBandwidth(c Capacity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(q *Amount, location *field.Path) {
		if q != nil && (q.Sign() == 0 || !isWhole(q)) {
			errs = append(errs,
				field.Invalid(location, q.String(), "is in Mbit/s: write a whole number greater than zero"))
		}
	}
	if c.Value.Sign() > 0 { // zero has an error already
		check(&c.Value, path.Child("value"))
	}
	if r := c.RequestPolicy; r != nil {
		request := path.Child("requestPolicy")
		check(r.Default, request.Child("default"))
		for i := range r.ValidValues {
			check(&r.ValidValues[i], request.Child("validValues").Index(i))
		}
	}
	return errs
}

// validateRequestPolicy checks what one claim may take of a counter of the value.
func validateRequestPolicy(p *RequestPolicy, value Amount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.ValidRange != nil && len(p.ValidValues) > 0 {
		return field.ErrorList{field.Forbidden(path, "validRange and validValues exclude each other: keep one")}
	}
	if p.ValidRange != nil {
		errs = append(errs, validateRange(p.ValidRange, value, path.Child("validRange"))...)
	}
	errs = append(errs, validateValues(p.ValidValues, value, path.Child("validValues"))...)
	if p.Default == nil {
		if p.ValidRange != nil || len(p.ValidValues) > 0 {
			errs = append(errs,
				field.Required(path.Child("default"),
					"a request policy with validRange or validValues needs a default"))
		}
		return errs
	}
	if len(errs) > 0 {
		return errs // the default cannot be judged by a broken range
	}
	return validateDefault(p, value, path.Child("default"))
}

// validateDefault checks the default of a request policy that is right otherwise.
func validateDefault(p *RequestPolicy, value Amount, path *field.Path) field.ErrorList {
	d := *p.Default
	var errs field.ErrorList
	if d.Cmp(value.Quantity) > 0 {
		errs = append(errs,
			field.Invalid(path, d.String(),
				fmt.Sprintf("is greater than the counter's value %s, so no claim could be satisfied: lower it",
					&value)))
	}
	if len(p.ValidValues) > 0 &&
		!slices.ContainsFunc(p.ValidValues, func(v Amount) bool { return v.Cmp(d.Quantity) == 0 }) {
		errs = append(errs,
			field.Invalid(path, d.String(), "must be one of validValues: add it there, or choose one of them"))
	}
	r := p.ValidRange
	if r == nil || r.Min == nil {
		return errs
	}
	if d.Cmp(r.Min.Quantity) < 0 {
		errs = append(errs,
			field.Invalid(path, d.String(),
				fmt.Sprintf("is less than validRange.min %s: raise it, or lower min", r.Min)))
	}
	if r.Max != nil && d.Cmp(r.Max.Quantity) > 0 {
		errs = append(errs,
			field.Invalid(path, d.String(),
				fmt.Sprintf("is greater than validRange.max %s: lower it, or raise max", r.Max)))
	}
	return append(errs, validateOnStep(d, r, path)...)
}

// validateRange checks a range for itself.
func validateRange(r *ValidRange, value Amount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"),
			"a range needs a minimum: set min, for example 1")}
	}
	if r.Min.Cmp(value.Quantity) > 0 {
		errs = append(errs,
			field.Invalid(path.Child("min"), r.Min.String(),
				fmt.Sprintf("is greater than the counter's value %s: lower it", &value)))
	}
	if r.Max != nil {
		if r.Max.Cmp(r.Min.Quantity) < 0 {
			errs = append(errs,
				field.Invalid(path.Child("max"), r.Max.String(),
					fmt.Sprintf("is less than min %s: raise it, or lower min", r.Min)))
		}
		if r.Max.Cmp(value.Quantity) > 0 {
			errs = append(errs,
				field.Invalid(path.Child("max"), r.Max.String(),
					fmt.Sprintf("is greater than the counter's value %s: lower it, or remove it", &value)))
		}
	}
	if r.Step == nil || len(errs) > 0 {
		return errs
	}
	if r.Step.Sign() <= 0 {
		return append(errs,
			field.Invalid(path.Child("step"), r.Step.String(),
				"must be greater than zero: remove it to accept every amount"))
	}
	smallest := r.Min.DeepCopy()
	smallest.Add(r.Step.Quantity)
	if smallest.Cmp(value.Quantity) > 0 {
		errs = append(errs,
			field.Invalid(path.Child("step"), r.Step.String(),
				fmt.Sprintf("min and one step are %s, more than the counter's value %s: lower the step, or remove it",
					smallest, &value)))
	}
	if r.Max != nil {
		errs = append(errs, validateOnStep(*r.Max, r, path.Child("max"))...)
	}
	return errs
}

// validateOnStep checks that an amount is a whole number of steps above the range's min.
func validateOnStep(amount Amount, r *ValidRange, path *field.Path) field.ErrorList {
	if r.Step == nil || r.Step.Sign() <= 0 {
		return nil
	}
	for _, q := range []*Amount{&amount, r.Min, r.Step} {
		if !isWhole(q) {
			return field.ErrorList{field.Invalid(path, q.String(),
				"must be a whole number if step is set: round it, or remove the step")}
		}
	}
	if (amount.Value()-r.Min.Value())%r.Step.Value() != 0 {
		return field.ErrorList{field.Invalid(path, amount.String(),
			fmt.Sprintf("must be min %s plus a whole number of steps of %s", r.Min, r.Step))}
	}
	return nil
}

// isWhole reports whether an amount is a whole number. Value rounds up.
func isWhole(a *Amount) bool {
	return a.CmpInt64(a.Value()) == 0
}

// validateValues checks a list of amounts for itself.
func validateValues(values []Amount, value Amount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(values) > maxValidValues {
		errs = append(errs, field.TooMany(path, len(values), maxValidValues))
	}
	for i, v := range values {
		if v.Cmp(value.Quantity) > 0 {
			errs = append(errs,
				field.Invalid(path.Index(i), v.String(),
					fmt.Sprintf("is greater than the counter's value %s: remove it", &value)))
		}
		if i > 0 && v.Cmp(values[i-1].Quantity) <= 0 {
			errs = append(errs,
				field.Invalid(path.Index(i), v.String(),
					"must be greater than the previous value: sort validValues and remove duplicates"))
		}
	}
	return errs
}
