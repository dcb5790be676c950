package upcoming

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount evaluates request policies for other tests: it returns the amount that a claim consumes from a counter in a
// set, and whether this amount is allowed and within the total. The rules are those for consumable capacity (KEP-5075),
// which KEP-5941 adopts. Without a request, the claim gets the default from the request policy or, if there is no
// default, everything. A request below the minimum gets the minimum. Any other request is rounded up to the next step
// or valid value. A request above the maximum or the largest valid value is rejected. request is nil if the claim does
// not request an amount of the counter.
func (c Counter) Amount(request *resource.Quantity) (amount resource.Quantity, ok bool) {
	switch {
	case request != nil && request.Cmp(*c.Value) > 0:
		return *request, false
	case request != nil:
		amount, ok = rounded(*request, c.RequestPolicy)
	case c.RequestPolicy != nil && c.RequestPolicy.Default != nil:
		amount, ok = *c.RequestPolicy.Default, true
	default:
		amount, ok = *c.Value, true
	}
	return amount, ok && amount.Cmp(*c.Value) <= 0
}

// rounded rounds a request up to the next amount that the policy allows.
func rounded(request resource.Quantity, policy *resourceapi.CapacityRequestPolicy) (resource.Quantity, bool) {
	switch {
	case policy == nil:
		return request, true
	case policy.ValidRange != nil:
		return inRange(request, policy.ValidRange)
	case len(policy.ValidValues) > 0:
		for _, value := range policy.ValidValues { // ascending
			if request.Cmp(value) <= 0 {
				return value, true
			}
		}
		return request, false
	}
	return request, true
}

// inRange rounds a request up to the next amount in the range.
func inRange(request resource.Quantity, allowed *resourceapi.CapacityRequestPolicyRange) (resource.Quantity, bool) {
	if request.Cmp(*allowed.Min) <= 0 {
		return *allowed.Min, true
	}
	if allowed.Step != nil {
		over, step := request.Value()-allowed.Min.Value(), allowed.Step.Value()
		if rest := over % step; rest > 0 {
			over += step - rest
		}
		request = *resource.NewQuantity(allowed.Min.Value()+over, resource.DecimalSI)
	}
	return request, allowed.Max == nil || request.Cmp(*allowed.Max) <= 0
}
