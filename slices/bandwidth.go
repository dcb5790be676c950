package slices

import (
	"cmp"
	"fmt"
	stdslices "slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// bandwidthStep is the granularity, in Mbit/s, to which default bandwidth shares are rounded down.
const bandwidthStep = 100

// link describes the bandwidth that a physical function's virtual functions share.
type link struct {
	// name is the name of the physical function's interface.
	name discovery.IfName
	// speed is in Mbit/s; 0 if it is unknown.
	speed int64
	// functions is the number of virtual and scalable functions that share the bandwidth.
	functions int64
	// requests is the bandwidth capacity with the request policy from the physical function's policy; nil if there is
	// none.
	requests *policy.Capacity
	// onRequest is the persona of a virtual function whose policy lets claims choose how much bandwidth they take; nil
	// if there is none. If it is set, functions have no default share.
	onRequest *policy.Persona
}

// link returns the bandwidth shared by the domain's virtual functions.
func (d conflictDomain) link() link {
	l := link{name: d.name, functions: int64(len(d.vfs))}
	if d.main == nil {
		return l
	}
	l.speed = max(int64(d.main.Device.LinkSpeed), 0)
	if n := d.main.Device.NumVFs; n > 0 { // includes functions that are not on the host, unlike d.vfs
		scalable := 0
		for _, f := range d.vfs {
			if f.Device.Type == discovery.TypeSF {
				scalable++
			}
		}
		l.functions = int64(n + scalable)
	}
	for _, vf := range d.vfs {
		for _, p := range inOrder(vf.Personas) {
			if p.LinkBandwidth != nil {
				l.onRequest = &p
				return l
			}
		}
	}
	for _, p := range inOrder(d.main.Personas) {
		if c := declared(p); c != nil && p.Exclusive && c.RequestPolicy != nil {
			l.requests = c
			break
		}
	}
	return l
}

// share returns the default bandwidth of each function. Shares of at least one step are rounded down to a multiple of
// the step. For example, dividing 25000 Mbit/s among 8 functions yields 3100 for each function, not 3125.
func (l link) share() int64 {
	if l.functions == 0 || l.onRequest != nil {
		return 0
	}
	share := l.speed / l.functions
	if share < bandwidthStep {
		return share
	}
	return share - share%bandwidthStep
}

// declared returns the bandwidth that the persona's policy defines, or nil if it defines none.
func declared(p policy.Persona) *policy.Capacity {
	i := stdslices.IndexFunc(p.Capacity, func(c policy.Capacity) bool { return c.Name == v1alpha1.Bandwidth })
	if i < 0 {
		return nil
	}
	return &p.Capacity[i]
}

// bandwidthOnRequest returns the persona from which claims take amounts of the link's bandwidth. It returns none if no
// policy for the link's functions requests such a persona, or if the link's speed is too low or unknown. Functions with
// a fixed amount consume the bandwidth counter, and this persona consumes that counter in full. Therefore, a link's
// bandwidth is never accounted for in both ways at the same time.
func (b *builder) bandwidthOnRequest(d conflictDomain, l link) []policy.Persona {
	if l.onRequest == nil {
		return nil
	}
	p, device := l.onRequest, string(l.name)+v1alpha1.BandwidthSuffix
	for _, vf := range d.vfs {
		for _, other := range vf.Personas {
			switch {
			case declared(other) != nil:
				b.problem(other.Policy, l.name, "claims of virtual functions with capacity[%s] exclude claims of %s, "+
					"which policy %s offers: write linkBandwidth in both policies", v1alpha1.Bandwidth, device,
					p.Policy)
			case other.LinkBandwidth != nil && !equality.Semantic.DeepEqual(other.LinkBandwidth, p.LinkBandwidth):
				b.problem(other.Policy, l.name, "its linkBandwidth has no effect, because policy %s has other amounts "+
					"for the same link: write the same amounts in both policies", p.Policy)
			}
		}
	}
	if l.speed == 0 {
		b.problem(p.Policy, l.name, "%s is not published, because the speed of the link is not known: bring the link "+
			"up", device)
		return nil
	}
	speed, request := quantity(l.speed), p.LinkBandwidth.DeepCopy()
	smallest := quantity(1) // without a range, a claim could request 0, which NIC settings treat as no limit
	if request.ValidRange == nil && len(request.ValidValues) == 0 {
		request.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: &smallest}
	}
	least := request.Default.DeepCopy()
	if r := request.ValidRange; r != nil {
		if r.Step == nil && (r.Max == nil || r.Max.Cmp(*r.Min) > 0) {
			r.Step = &smallest
		}
		if r.Step != nil { // the API rejects a range without room for one step
			least = quantity(max(least.Value(), r.Min.Value()+r.Step.Value()))
		}
		if r.Max != nil && r.Max.Cmp(speed) > 0 {
			r.Max = nil // the capacity is the limit
		}
	}
	request.ValidValues = stdslices.DeleteFunc(request.ValidValues,
		func(v resource.Quantity) bool { return v.Cmp(speed) > 0 })
	if least.Cmp(speed) > 0 {
		b.problem(p.Policy, l.name, "%s is not published, because the link has %d and linkBandwidth needs %d for its "+
			"default and one step above min: correct linkBandwidth, which is in Mbit/s", device, l.speed, least.Value())
		return nil
	}
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	return []policy.Persona{{Suffix: v1alpha1.BandwidthSuffix, Policy: p.Policy, LinkBandwidth: p.LinkBandwidth,
		Capacity: []policy.Capacity{{Name: v1alpha1.Bandwidth, Value: speed, RequestPolicy: request}},
		AdditionalAttributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			policy.Type: text(v1alpha1.TypeBandwidth), policy.PFName: text(string(l.name))}}}
}

// isOnRequest reports whether claims take amounts of a physical function's bandwidth; main contains its entries.
func isOnRequest(main []Entry) bool {
	return stdslices.ContainsFunc(main, func(e Entry) bool { return e.Persona.IsBandwidth() })
}

// bandwidths returns the bandwidth amounts offered for an exclusive persona of a virtual function: the tiers in a
// request policy, or a single amount. If no request policy defines a default, the single amount is the whole value, as
// for any capacity without a request policy.
//
// For example, with the valid values 1000 and 10000, each virtual function has two entries, and claims can hold at most
// one of them. The scheduler allocates the smallest entry that satisfies a request.
func (l link) bandwidths(p policy.Persona) (values []resource.Quantity, tiers bool) {
	c := declared(p)
	if c == nil {
		c = l.requests
	}
	switch {
	case c == nil:
		return []resource.Quantity{quantity(l.share())}, false
	case c.RequestPolicy != nil && len(c.RequestPolicy.ValidValues) > 0:
		return c.RequestPolicy.ValidValues, true
	case c.RequestPolicy != nil && c.RequestPolicy.Default != nil:
		return []resource.Quantity{*c.RequestPolicy.Default}, false
	}
	return []resource.Quantity{c.Value}, false
}

// functionEntries returns the entries for a virtual function, each with the bandwidth that it consumes on the link. In
// an exclusive entry, the bandwidth is also published as a capacity, so that the scheduler can match requests against
// it. A persona with tiers has one entry per tier, in ascending order.
func (b *builder) functionEntries(pool string, l link, vf policy.DeviceDecision) []Entry {
	var personas []policy.Persona
	for _, p := range b.attachable(vf.Device, inOrder(vf.Personas)) {
		if !p.Exclusive {
			personas = append(personas, p)
			continue
		}
		values, tiers := l.bandwidths(p)
		for _, amount := range values {
			offer := p
			if tiers {
				offer.Suffix = fmt.Sprintf("%s-bw%d", p.Suffix, amount.Value())
			}
			if held, ok := b.heldBandwidth(pool, entryName(vf.Device, offer)); ok {
				amount = quantity(held)
			}
			offer.Capacity = withBandwidth(p.Capacity, amount)
			personas = append(personas, offer)
		}
	}
	entries := b.entries(vf.Device, personas)
	b.setBandwidth(pool, l, entries)
	return b.withinSpeed(pool, l, entries)
}

// withBandwidth returns the capacities with the bandwidth set to an amount, sorted by name. A zero amount is omitted.
func withBandwidth(capacities []policy.Capacity, amount resource.Quantity) []policy.Capacity {
	changed := stdslices.DeleteFunc(stdslices.Clone(capacities),
		func(c policy.Capacity) bool { return c.Name == v1alpha1.Bandwidth })
	if !amount.IsZero() {
		changed = append(changed, policy.Capacity{Name: v1alpha1.Bandwidth, Value: amount.DeepCopy()})
	}
	stdslices.SortFunc(changed, func(a, b policy.Capacity) int { return cmp.Compare(a.Name, b.Name) })
	return changed
}

// heldBandwidth returns the bandwidth of an entry that a claim holds: the amount at the time of allocation, regardless
// of the function's current share. This amount must stay published, since the scheduler adds up published amounts.
func (b *builder) heldBandwidth(pool, name string) (int64, bool) {
	holding, held := b.features.Held[EntryID{Pool: pool, Name: name}]
	return holding.Bandwidth, held
}

// setBandwidth sets the bandwidth that a virtual function's entries consume on the link. Shared entries that may be
// held concurrently and that have no defined bandwidth split the function's share, so that their sum does not exceed
// it.
//
// Amounts held by claims take precedence, since the sum of the published amounts must match the sum that the scheduler
// has counted.
func (b *builder) setBandwidth(pool string, l link, entries []Entry) {
	for i := range entries {
		e := &entries[i]
		c := declared(e.Persona)
		held, isHeld := b.heldBandwidth(pool, e.Name)
		switch {
		case isHeld:
			e.Bandwidth = held
		case c != nil:
			e.Bandwidth = c.Value.Value()
		case !e.Persona.Exclusive:
			e.Bandwidth = l.share() / together(entries)
		}
	}
}

// withinSpeed omits entries that no claim could get because they need more bandwidth than the link has. If any entry of
// a function is allocated, withinSpeed keeps all of the function's entries, so that the consumption of the allocated
// entry does not change.
func (b *builder) withinSpeed(pool string, l link, entries []Entry) []Entry {
	if stdslices.ContainsFunc(entries, func(e Entry) bool { _, held := b.heldBandwidth(pool, e.Name); return held }) {
		return entries
	}
	return stdslices.DeleteFunc(entries, func(e Entry) bool {
		switch {
		case e.Bandwidth <= l.speed:
			return false
		case l.speed == 0:
			b.problem(e.Persona.Policy, l.name, "entries of its virtual functions with a bandwidth are not published, "+
				"because the speed of the link is not known: bring the link up, or remove capacity[%s]",
				v1alpha1.Bandwidth)
		default:
			b.problem(e.Persona.Policy, l.name, "entries of its virtual functions with a bandwidth of %d are not "+
				"published, because the link has %d: "+
				"correct capacity[%s], which is in Mbit/s", e.Bandwidth, l.speed, v1alpha1.Bandwidth)
		}
		return true
	})
}

// mostBandwidth returns the maximum bandwidth that a virtual function's entries can consume concurrently: the bandwidth
// of one exclusive entry, or of all shared entries without a group plus one entry from each group. The result is capped
// at limit, so that sums do not overflow.
func mostBandwidth(entries []Entry, limit int64) int64 {
	exclusive, shared := int64(0), int64(0)
	groups := map[string]int64{}
	for _, e := range entries {
		taken := min(e.Bandwidth, limit)
		switch group := e.Persona.ExclusionGroup; {
		case e.Persona.Exclusive:
			exclusive = max(exclusive, taken)
		case group == "":
			shared += taken
		default:
			groups[group] = max(groups[group], taken)
		}
	}
	for _, taken := range groups {
		shared += taken
	}
	return min(max(exclusive, shared), limit)
}

// budget returns the bandwidth counter. It returns none if no entry consumes bandwidth, or if the counter could never
// reject anything: the functions cannot consume more than the link's speed, the physical function is not offered
// exclusively, and claims do not take amounts of its bandwidth. Features.CountBandwidth overrides the second condition.
// The counter's value is the link's speed or, if it is greater, the amount that claims hold, since a lower value would
// block the whole pool. After a policy has been edited, claims may hold entries of a function that now exclude each
// other. Therefore, if the amount held for a function exceeds the amount that could be allocated now, the held amount
// counts.
func (b *builder) budget(pool string, l link, main []Entry, vfs []function) amounts {
	wanted, held := int64(0), int64(0)
	limit := l.speed + 1
	for _, vf := range vfs {
		here := int64(0)
		for _, e := range vf.entries {
			if _, ok := b.heldBandwidth(pool, e.Name); ok {
				here += e.Bandwidth
			}
		}
		wanted += max(mostBandwidth(vf.entries, limit), min(here, limit))
		held += here
	}
	counted := exclusives(main) > 0 || isOnRequest(main) || wanted > l.speed || b.features.CountBandwidth
	if wanted == 0 || !counted {
		return nil
	}
	return amounts{bandwidthCounter: quantity(max(l.speed, held))}
}
