package upcoming

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// link describes the bandwidth that a physical function's virtual functions share.
type link struct {
	// speed is in Mbit/s; 0 if it is unknown.
	speed int64
	// functions is the number of virtual functions that share the bandwidth.
	functions int64
	// requests is the request policy for bandwidth; nil if no policy defines one.
	requests *resourceapi.CapacityRequestPolicy
	// policy is the name of the policy that defines requests.
	policy   string
	problems []policy.Problem
}

// linksOf returns the links that virtual functions share, by the interface name of the physical function.
func linksOf(decision policy.Decision) map[discovery.IfName]*link {
	links := map[discovery.IfName]*link{}
	devices := slices.SortedFunc(slices.Values(decision.Devices), func(a, b policy.DeviceDecision) int {
		return cmp.Or(cmp.Compare(a.Device.VFIndex, b.Device.VFIndex), cmp.Compare(a.Device.Name, b.Device.Name))
	})
	for _, d := range devices {
		pf := d.Device.PFName
		if pf == "" {
			continue
		}
		if links[pf] == nil {
			links[pf] = &link{}
		}
		links[pf].functions++
		links[pf].request(pf, d.Personas)
	}
	for _, d := range devices {
		l := links[d.Device.Name]
		if l == nil {
			continue
		}
		l.speed = int64(d.Device.LinkSpeed)
		if d.Device.NumVFs > 0 {
			l.functions = int64(d.Device.NumVFs)
		}
		if l.requests == nil {
			l.request(d.Device.Name, d.Personas)
		}
	}
	return links
}

// request adopts the bandwidth request policy from the personas. Only the first request policy is used, since a counter
// can have only one.
func (l *link) request(pf discovery.IfName, personas []policy.Persona) {
	for _, p := range personas {
		i := slices.IndexFunc(p.Capacity, func(c policy.Capacity) bool { return c.Name == v1alpha1.Bandwidth })
		if i < 0 || !p.Exclusive || p.Capacity[i].RequestPolicy == nil {
			continue
		}
		requests := p.Capacity[i].RequestPolicy
		switch {
		case l.requests == nil:
			l.requests, l.policy = requests, p.Policy
		case !equality.Semantic.DeepEqual(l.requests, requests):
			l.problem(p.Policy, pf, "its request policy for bandwidth is not used: the counter of the physical "+
				"function has the request policy of policy %s", l.policy)
		}
	}
}

// problem records a problem. Duplicates are ignored.
func (l *link) problem(policyName string, pf discovery.IfName, format string, args ...any) {
	p := policy.Problem{Policy: policyName, Device: string(pf), Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(l.problems, p) {
		l.problems = append(l.problems, p)
	}
}

// requestPolicy returns the request policy for the bandwidth counter: the one from the policies, limited to the link's
// speed, or, if it does not fit or does not exist, the default.
func (l *link) requestPolicy(pf discovery.IfName) *resourceapi.CapacityRequestPolicy {
	if l.requests == nil {
		return l.anything()
	}
	fitting := l.fitting()
	if fitting == nil {
		l.problem(l.policy, pf, "its request policy for bandwidth is not used: the link has only %d Mbit/s", l.speed)
		return l.anything()
	}
	return fitting
}

// anything returns a request policy that allows any amount from one step up to the whole link. The default is an equal
// share.
func (l *link) anything() *resourceapi.CapacityRequestPolicy {
	share := l.speed / l.functions
	if l.speed < bandwidthStep {
		return &resourceapi.CapacityRequestPolicy{Default: quantity(share)}
	}
	return &resourceapi.CapacityRequestPolicy{
		Default: quantity(max(share-share%bandwidthStep, bandwidthStep)),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{
			Min: quantity(bandwidthStep), Max: quantity(l.speed - l.speed%bandwidthStep), Step: quantity(bandwidthStep),
		},
	}
}

// fitting returns the request policy defined by policies, minus any amounts that exceed the link's speed. It returns
// nil if the default exceeds the link's speed.
func (l *link) fitting() *resourceapi.CapacityRequestPolicy {
	tooMuch := func(q resource.Quantity) bool { return q.CmpInt64(l.speed) > 0 }
	fitting := l.requests.DeepCopy()
	fitting.ValidValues = slices.DeleteFunc(fitting.ValidValues, tooMuch)
	if fitting.Default != nil && tooMuch(*fitting.Default) {
		return nil
	}
	r := fitting.ValidRange
	switch {
	case r == nil || r.Max == nil || !tooMuch(*r.Max):
	case r.Step == nil:
		r.Max = quantity(l.speed)
	default: // the largest step that does not exceed the link's speed
		over := l.speed - r.Min.Value()
		r.Max = quantity(l.speed - over%r.Step.Value())
	}
	return fitting
}

// quantity converts an integer to a quantity.
func quantity(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.DecimalSI)
}
