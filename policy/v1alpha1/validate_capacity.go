package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bandwidth is the counter that may have a request policy on exclusive devices. It is in Mbit/s.
const Bandwidth = "bandwidth"

// BandwidthRemark says which bandwidths of a valid exposure no claim can get, and how to offer them; empty if all can be
// had. Kubernetes has no counters from which a claim takes as much as it asks for, so a range is kept for later releases.
func BandwidthRemark(e *Exposure) string {
	c, ok := e.Capacity[Bandwidth]
	if e.AllowMultipleAllocations || !ok || c.RequestPolicy == nil || c.RequestPolicy.ValidRange == nil {
		return ""
	}
	r := c.RequestPolicy
	greatest := &c.Value
	if r.ValidRange.Max != nil {
		greatest = r.ValidRange.Max
	}
	return fmt.Sprintf("capacity[%s].requestPolicy.validRange can't be kept on this Kubernetes, where every virtual function has the default, %s: "+
		"a claim that asks for more, up to %s, gets none, and one that asks for less, down to %s, takes %s all the same; list the amounts in validValues to offer each of them",
		Bandwidth, r.Default, greatest, r.ValidRange.Min, r.Default)
}

// validateCapacities checks the counters of an exposure by the rules of the ResourceSlice API.
func validateCapacities(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(e.Capacity) > maxEntries {
		errs = append(errs, field.TooMany(path, len(e.Capacity), maxEntries))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Capacity)) {
		capacity, at := e.Capacity[name], path.Key(name)
		if !isID(name) {
			errs = append(errs, field.Invalid(at, name,
				"the name of a counter must be letters, digits and '_', start with a letter or '_', and have at most 32 characters"))
		}
		if capacity.Value.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), capacity.Value.String(), "must be greater than zero"))
		}
		if capacity.RequestPolicy == nil {
			continue
		}
		if !e.AllowMultipleAllocations && name != Bandwidth {
			errs = append(errs, field.Forbidden(at.Child("requestPolicy"),
				"the device is exclusive, a claim takes all of it: remove requestPolicy, or set allowMultipleAllocations to true"))
			continue
		}
		errs = append(errs, validateRequestPolicy(capacity.RequestPolicy, capacity.Value, at.Child("requestPolicy"))...)
	}
	if bandwidth, ok := e.Capacity[Bandwidth]; ok && !e.AllowMultipleAllocations {
		errs = append(errs, validateBandwidth(bandwidth, path.Key(Bandwidth))...)
	}
	return errs
}

// validateBandwidth checks the amounts of bandwidth that an exclusive device can have: each is what an entry is named by
// or takes of a counter.
func validateBandwidth(c Capacity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(q *resource.Quantity, at *field.Path) {
		if q != nil && q.Sign() >= 0 && (q.Sign() == 0 || !isInt64(*q)) {
			errs = append(errs, field.Invalid(at, q.String(), "is in Mbit/s: write a whole number greater than zero"))
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
func validateRequestPolicy(p *RequestPolicy, value resource.Quantity, path *field.Path) field.ErrorList {
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
			errs = append(errs, field.Required(path.Child("default"), "a request policy with validRange or validValues needs a default"))
		}
		return errs
	}
	if len(errs) > 0 {
		return errs // the default cannot be judged by a broken range
	}
	return validateDefault(p, value, path.Child("default"))
}

// validateDefault checks the default of a request policy that is right otherwise.
func validateDefault(p *RequestPolicy, value resource.Quantity, path *field.Path) field.ErrorList {
	d := *p.Default
	var errs field.ErrorList
	switch {
	case d.Sign() < 0:
		errs = append(errs, field.Invalid(path, d.String(), "must not be negative"))
	case d.Cmp(value) > 0:
		errs = append(errs, field.Invalid(path, d.String(), fmt.Sprintf("is greater than the counter's value %s, so no claim could be satisfied", &value)))
	}
	if len(p.ValidValues) > 0 && !slices.ContainsFunc(p.ValidValues, func(v resource.Quantity) bool { return v.Cmp(d) == 0 }) {
		errs = append(errs, field.Invalid(path, d.String(), "must be one of validValues"))
	}
	r := p.ValidRange
	if r == nil || r.Min == nil {
		return errs
	}
	if d.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(path, d.String(), fmt.Sprintf("is less than validRange.min %s", r.Min)))
	}
	if r.Max != nil && d.Cmp(*r.Max) > 0 {
		errs = append(errs, field.Invalid(path, d.String(), fmt.Sprintf("is greater than validRange.max %s", r.Max)))
	}
	return append(errs, validateOnStep(d, r, path)...)
}

// validateRange checks a range for itself.
func validateRange(r *ValidRange, value resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "a range needs its least amount")}
	}
	if r.Min.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("min"), r.Min.String(), "must not be negative"))
	}
	if r.Min.Cmp(value) > 0 {
		errs = append(errs, field.Invalid(path.Child("min"), r.Min.String(), fmt.Sprintf("is greater than the counter's value %s", &value)))
	}
	if r.Max != nil {
		if r.Max.Cmp(*r.Min) < 0 {
			errs = append(errs, field.Invalid(path.Child("max"), r.Max.String(), fmt.Sprintf("is less than min %s", r.Min)))
		}
		if r.Max.Cmp(value) > 0 {
			errs = append(errs, field.Invalid(path.Child("max"), r.Max.String(), fmt.Sprintf("is greater than the counter's value %s", &value)))
		}
	}
	if r.Step == nil || len(errs) > 0 {
		return errs
	}
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(path.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	one := r.Min.DeepCopy()
	one.Add(*r.Step)
	if one.Cmp(value) > 0 {
		errs = append(errs, field.Invalid(path.Child("step"), r.Step.String(), fmt.Sprintf("min and one step are %s, more than the counter's value %s", &one, &value)))
	}
	if r.Max != nil {
		errs = append(errs, validateOnStep(*r.Max, r, path.Child("max"))...)
	}
	return errs
}

// validateOnStep checks that an amount is a whole number of steps above the range's min.
func validateOnStep(amount resource.Quantity, r *ValidRange, path *field.Path) field.ErrorList {
	if r.Step == nil || r.Step.Sign() <= 0 {
		return nil
	}
	for _, q := range []resource.Quantity{amount, *r.Min, *r.Step} {
		if !isInt64(q) {
			return field.ErrorList{field.Invalid(path, q.String(), "must be a whole number below 2^63 where there is a step")}
		}
	}
	if (amount.Value()-r.Min.Value())%r.Step.Value() != 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), fmt.Sprintf("must be min %s plus a whole number of steps of %s", r.Min, r.Step))}
	}
	return nil
}

// isInt64 says whether q is a whole number that fits 64 bits.
func isInt64(q resource.Quantity) bool {
	whole := resource.NewQuantity(q.Value(), q.Format)
	return whole.Cmp(q) == 0 && q.Value() >= 0 && q.Value() < math.MaxInt64
}

// validateValues checks a list of amounts for itself.
func validateValues(values []resource.Quantity, value resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(values) > maxValidValues {
		errs = append(errs, field.TooMany(path, len(values), maxValidValues))
	}
	for i, v := range values {
		if v.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Index(i), v.String(), "must not be negative"))
		}
		if v.Cmp(value) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), v.String(), fmt.Sprintf("is greater than the counter's value %s", &value)))
		}
		if i > 0 && v.Cmp(values[i-1]) <= 0 {
			errs = append(errs, field.Invalid(path.Index(i), v.String(), "must be greater than the value before it: sort validValues, without repetition"))
		}
	}
	return errs
}
