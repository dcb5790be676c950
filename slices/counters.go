package slices

import (
	"fmt"
	"maps"
	stdslices "slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// exclusionSlots is the counter that separates exclusive entries from each other and from entries of virtual
	// functions.
	exclusionSlots = "exclusion-slots"
	// bandwidthCounter is the counter for the bandwidth, in Mbit/s, that is shared by the virtual functions of a
	// physical function.
	bandwidthCounter = v1alpha1.Bandwidth
	// lock is a counter with a value of one. Every exclusive entry of a virtual function consumes it, so that at most
	// one of these entries can be held.
	lock = "lock"
)

// amounts maps counter names to quantities.
type amounts map[string]resource.Quantity

// separateCounters returns the counters that enforce the exclusions between the entries of one device, and the amounts
// that each entry consumes. The counters are those in extra and, for every capacity of every shared entry that excludes
// another entry, a mirror whose name starts with prefix.
//
// A shared entry consumes its own mirrors in full, and also the mirrors of the other entries in its group. The
// scheduler charges the mirrors once, when the first claim takes a share, and releases them with the last share. In
// between, neither an exclusive entry nor another entry in the group fits. An exclusive entry consumes all counters. An
// entry without conflicts has no mirrors: they would never reject anything, but kube-scheduler would have to process
// them on every node that it tries.
//
// For example, a device has the shared entries a (with a bandwidth capacity of 10) and b (with a pods capacity of 5),
// which are in the same group, and the exclusive entry x. The counters are bandwidth-capacity with 10 and pods-capacity
// with 5. While a claim has a share of a, both counters are used up, so neither b nor x fits. More shares of a still
// fit, since the scheduler charges a only once.
func separateCounters(entries []Entry, prefix string, extra amounts) (all amounts, each []amounts) {
	all = maps.Clone(extra)
	mirrors := make([]amounts, len(entries))
	uses := map[string]int{}
	for _, e := range entries {
		for _, c := range divided(e) {
			uses[c.Name]++
		}
	}
	for i, e := range entries {
		mirrors[i] = amounts{}
		if !stdslices.ContainsFunc(entries, func(other Entry) bool { return excludes(e, other) }) {
			continue
		}
		for _, c := range divided(e) {
			counter := c.Name
			if uses[c.Name] > 1 { // capacities with the same name need separate counters
				counter += e.Persona.Suffix
			}
			mirrors[i][label(prefix+counter+"-capacity")] = c.Value.DeepCopy()
		}
		maps.Copy(all, mirrors[i])
	}
	for _, e := range entries {
		if e.Persona.Exclusive {
			each = append(each, all)
			continue
		}
		consumed := amounts{}
		for j, other := range entries {
			if other.Name == e.Name || excludes(e, other) {
				maps.Copy(consumed, mirrors[j])
			}
		}
		each = append(each, consumed)
	}
	return all, each
}

// divided returns the capacities of an entry that are divided among claims.
func divided(e Entry) []policy.Capacity {
	if e.Persona.Exclusive {
		return nil
	}
	return e.Persona.Capacity
}

// excludes reports whether a shared entry of a device must not be used at the same time as another entry of the same
// device. The result has no meaning if the first entry is exclusive, since exclusive entries have no mirrors.
func excludes(shared, other Entry) bool {
	if other.Name == shared.Name {
		return false
	}
	group := shared.Persona.ExclusionGroup
	return other.Persona.Exclusive || group != "" && other.Persona.ExclusionGroup == group
}

// exclusives returns the number of exclusive entries.
func exclusives(entries []Entry) int {
	n := 0
	for _, e := range entries {
		if e.Persona.Exclusive {
			n++
		}
	}
	return n
}

// together returns the maximum number of a device's entries that may be held concurrently: all shared entries without a
// group plus one entry from each group, or one exclusive entry.
func together(entries []Entry) int64 {
	shared := int64(0)
	groups := map[string]bool{}
	for _, e := range entries {
		group := e.Persona.ExclusionGroup
		if e.Persona.Exclusive || group != "" && groups[group] {
			continue
		}
		groups[group] = true
		shared++
	}
	return max(shared, int64(min(exclusives(entries), 1)))
}

// plan defines how the exclusions between the entries of a domain are enforced.
type plan struct {
	// sets contains the domain's counter sets, except sets that are local to virtual functions.
	sets []resourceapi.CounterSet
	// function is the consumption of each entry of a virtual function from the sets, apart from bandwidth. It has no
	// counters if the function's entries do not exclude any entry of the main device.
	function resourceapi.DeviceCounterConsumption
	// bandwidth is true if virtual functions consume bandwidth from the link.
	bandwidth bool
}

// planCounters sets the consumption of the entries of a domain's main device if only counters enforce the exclusions in
// the domain. It returns nil if the domain has no virtual functions and its main device has at most one entry. budget
// is the counter from which virtual functions consume bandwidth, if any.
//
// Counters that could never reject anything are omitted (ADR 38): if a physical function has no exclusive entry, its
// virtual functions do not take slots. As soon as an exclusive entry is published, virtual functions take slots even if
// claims already hold them, since the scheduler counts the current consumption of a held entry.
func planCounters(d conflictDomain, main []Entry, vfs []function, budget amounts) (*plan, error) {
	if len(d.vfs) == 0 && len(main) < 2 {
		return nil, nil
	}
	extra := amounts{}
	nominal, taken := slots(main, vfs)
	if nominal > 0 {
		extra[exclusionSlots] = quantity(nominal)
	}
	maps.Copy(extra, budget)
	all, each := separateCounters(main, "", extra)
	if len(all) > resourceapi.ResourceSliceMaxCountersPerCounterSet {
		return nil,
			fmt.Errorf("its policies need %d shared counters and the limit is %d; remove capacities or policies",
				len(all), resourceapi.ResourceSliceMaxCountersPerCounterSet)
	}
	set := d.set(all)
	for i := range main {
		if main[i].Persona.IsBandwidth() {
			maps.Copy(each[i], budget)
		}
		main[i].consume(set.Name, each[i])
	}
	slot := amounts{}
	if nominal > 0 { // exclusive entries still need the nominal value when slots are taken
		slot[exclusionSlots] = quantity(1)
		set.Counters[exclusionSlots] = resourceapi.Counter{Value: quantity(nominal - taken)}
	}
	p := &plan{function: consumption(set.Name, slot), bandwidth: len(budget) > 0}
	if len(set.Counters) > 0 { // the API rejects a set without counters
		p.sets = []resourceapi.CounterSet{set}
	}
	return p, nil
}

// set returns the domain's counter set.
func (d conflictDomain) set(values amounts) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: label(string(d.name) + "-counters"), Counters: counters(values)}
}

// slots returns the nominal number of exclusion slots, and the number of slots that are taken because virtual functions
// are enslaved to a link on the host. The main device has one slot. Each virtual function has one slot for each of its
// entries that may be held concurrently and one for its master, but at least one in total. Every entry of a virtual
// function consumes one slot. An exclusive entry of the physical function needs all slots, so it only fits if none of
// them is taken. There are no slots if there is no exclusive entry, or if no other entry could take a slot.
func slots(main []Entry, vfs []function) (nominal, taken int64) {
	nominal = 1
	functions := int64(0)
	for _, vf := range vfs {
		needed := together(vf.entries)
		if vf.device.Master != "" {
			needed++
			taken++
		}
		nominal += max(needed, 1)
		functions += needed
	}
	if exclusive := int64(exclusives(main)); exclusive == 0 || exclusive+functions < 2 {
		return 0, 0
	}
	return nominal, taken
}

// consume adds an amount consumed from a counter set to the entry's spec.
func (e *Entry) consume(set string, consumed amounts, groups ...string) {
	if len(consumed) > 0 { // the API rejects a consumption without counters
		e.Spec.ConsumesCounters = append(e.Spec.ConsumesCounters, consumption(set, consumed, groups...))
	}
}

// consumes reports whether the entry consumes counters from the given set.
func (e *Entry) consumes(set string) bool {
	return stdslices.ContainsFunc(e.Spec.ConsumesCounters,
		func(c resourceapi.DeviceCounterConsumption) bool { return c.CounterSet == set })
}

// consumption returns a consumption from a counter set, with the entry's compatibility groups for this set.
func consumption(set string, consumed amounts, groups ...string) resourceapi.DeviceCounterConsumption {
	return resourceapi.DeviceCounterConsumption{CounterSet: set, Counters: counters(consumed),
		CompatibilityGroups: groups}
}

// counters converts quantities to counters.
func counters(values amounts) map[string]resourceapi.Counter {
	wrapped := map[string]resourceapi.Counter{}
	for name, value := range values {
		wrapped[name] = resourceapi.Counter{Value: value.DeepCopy()}
	}
	return wrapped
}

// quantity converts an integer to a quantity.
func quantity(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.DecimalSI)
}
