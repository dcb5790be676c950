package upcoming

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

const (
	// bandwidthKey is the name of the capacity that claims use to request bandwidth.
	bandwidthKey = resourceapi.QualifiedName(v1alpha1.AttributeDomain + "/" + v1alpha1.Bandwidth)
	// bandwidthCounter is the counter of a physical function that is shared by its virtual functions.
	bandwidthCounter = v1alpha1.Bandwidth
	// bandwidthStep is the minimum bandwidth that a claim can request, and the granularity of its requests, in Mbit/s,
	// unless a policy defines other values.
	bandwidthStep = 100
)

// RequestDriven returns the slices that a node without held devices would publish if the API supported KEP-5941. Each
// virtual function is published once, and claims request amounts of the physical function's bandwidth. The request
// policy comes from a policy for the virtual functions or, if none of these defines one, from a policy for the physical
// function. Without such a policy, a claim gets an equal share by default, and may request from 100 Mbit/s up to the
// link's speed in steps of 100 (the published design, §6.3). Entries that several claims can share consume a fixed
// amount.
func RequestDriven(name string, decision policy.Decision, features draslices.Features) (Node, error) {
	features.Held, features.CountBandwidth = nil, true
	result, err := draslices.Build(name, withoutRequests(decision), features)
	if err != nil {
		return Node{}, err
	}
	node := FromResult(result)
	links := linksOf(decision)
	for _, e := range result.Entries {
		l := links[e.Device.PFName]
		if l == nil || e.Bandwidth == 0 {
			continue
		}
		for i := range node.Pools[e.Pool] {
			slice := &node.Pools[e.Pool][i]
			slice.setRequestPolicy(l.requestPolicy(e.Device.PFName))
			if e.Persona.Exclusive {
				slice.takeFromClaims(e.Name)
			}
		}
	}
	for _, l := range links {
		node.Problems = append(node.Problems, l.problems...)
	}
	slices.SortFunc(node.Problems, func(p, q policy.Problem) int {
		return cmp.Or(cmp.Compare(p.Policy, q.Policy), cmp.Compare(p.Device, q.Device),
			cmp.Compare(p.Message, q.Message))
	})
	return node, nil
}

// withoutRequests returns the decision without the bandwidth settings of exclusive entries, so that each virtual
// function has a single entry with its share.
func withoutRequests(decision policy.Decision) policy.Decision {
	changed := policy.Decision{Devices: slices.Clone(decision.Devices), Problems: decision.Problems}
	for i := range changed.Devices {
		d := &changed.Devices[i]
		d.Personas = slices.Clone(d.Personas)
		for j := range d.Personas {
			if p := &d.Personas[j]; p.Exclusive {
				p.Capacity = withoutRequest(p.Capacity, d.Device.PFName != "")
			}
		}
	}
	return changed
}

// withoutRequest returns the capacities without the bandwidth if they belong to a virtual function. For other devices,
// it only omits the request policy of the bandwidth.
func withoutRequest(capacities []policy.Capacity, function bool) []policy.Capacity {
	var changed []policy.Capacity
	for _, c := range capacities {
		if c.Name == v1alpha1.Bandwidth {
			if function {
				continue
			}
			c.RequestPolicy = nil
		}
		changed = append(changed, c)
	}
	return changed
}

// setRequestPolicy sets the request policy of the bandwidth counter if the slice contains this counter.
func (s *Slice) setRequestPolicy(requests *resourceapi.CapacityRequestPolicy) {
	for _, set := range s.SharedCounters {
		if c, ok := set.Counters[bandwidthCounter]; ok {
			c.RequestPolicy = requests
			set.Counters[bandwidthCounter] = c
		}
	}
}

// takeFromClaims lets claims choose the bandwidth of a device if the slice contains the device. The share is then no
// longer a capacity of the device, since this capacity would cause claims for more bandwidth to be rejected.
func (s *Slice) takeFromClaims(name string) {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return
	}
	d := &s.Devices[i]
	d.Capacity = without(d.Capacity, map[resourceapi.QualifiedName]bool{bandwidthKey: true})
	for _, c := range d.ConsumesCounters {
		if _, ok := c.Counters[bandwidthCounter]; ok {
			c.Counters[bandwidthCounter] = Counter{ValueFrom: &ValueFrom{CapacityKey: bandwidthKey}}
		}
	}
}
