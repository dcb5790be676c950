package slices

import (
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy"
)

// exclusionSlots is the counter that keeps exclusive entries apart.
const exclusionSlots = "exclusion-slots"

// counterPlan says what each entry of a conflict domain consumes.
//
// A shared entry consumes its own mirrored counters in full and those of its group's peers. The scheduler charges that
// once, when the first claim takes a share, and releases it with the last; while it is charged, neither a peer nor an
// exclusive entry fits. An exclusive entry consumes everything. A virtual function consumes one slot, so the physical
// function, which needs all slots, is free only when all of them are.
type counterPlan struct {
	set resourceapi.CounterSet
	// nominal are the values that exclusive entries consume. They exceed the published ones where a virtual function is
	// in use by a link on the host.
	nominal map[string]resource.Quantity
	// mirrors are the counters of each shared entry, by name.
	mirrors map[string][]string
	// members are the shared entries of each exclusion group, by name.
	members map[string][]string
}

// planCounters returns the plan of a domain with the entries of its main device; nil if nothing in it conflicts.
func planCounters(d conflictDomain, main []Entry) (*counterPlan, error) {
	if len(d.vfs) == 0 && len(main) < 2 {
		return nil, nil
	}
	plan := &counterPlan{
		nominal: map[string]resource.Quantity{},
		mirrors: map[string][]string{},
		members: map[string][]string{},
	}
	published := map[string]resource.Quantity{}
	if nominal, taken, ok := slots(d, main); ok {
		plan.nominal[exclusionSlots] = quantity(nominal)
		published[exclusionSlots] = quantity(nominal - taken)
	}
	plan.addMirrors(main)
	for counter, value := range plan.nominal {
		if _, ok := published[counter]; !ok {
			published[counter] = value
		}
	}
	if len(published) > resourceapi.ResourceSliceMaxCountersPerCounterSet {
		return nil, fmt.Errorf("its policies need %d shared counters and the limit is %d: remove capacities or policies",
			len(published), resourceapi.ResourceSliceMaxCountersPerCounterSet)
	}
	plan.set = resourceapi.CounterSet{Name: label(string(d.name) + "-counters"), Counters: counters(published)}
	return plan, nil
}

// slots returns the nominal number of exclusion slots, and how many of them are taken on the host by virtual functions
// that are enslaved to a link. There is one slot for the main device, and for every virtual function one for its entry
// and one for its master, at least one. Without virtual functions a slot is needed by several exclusive entries only.
func slots(d conflictDomain, main []Entry) (nominal, taken int64, ok bool) {
	if len(d.vfs) == 0 {
		exclusive := 0
		for _, e := range main {
			if e.Persona.Exclusive {
				exclusive++
			}
		}
		return 1, 0, exclusive > 1
	}
	nominal = 1
	for _, vf := range d.vfs {
		needed := int64(min(len(vf.Personas), 1))
		if vf.Device.Master != "" {
			needed++
			taken++
		}
		nominal += max(needed, 1)
	}
	return nominal, taken, true
}

// addMirrors adds a counter for every capacity of every shared entry. Entries with capacities of one name have counters
// of their own.
func (plan *counterPlan) addMirrors(main []Entry) {
	uses := map[string]int{}
	for _, e := range main {
		if !e.Persona.Exclusive {
			for _, c := range e.Persona.Capacity {
				uses[c.Name]++
			}
		}
	}
	for _, e := range main {
		if e.Persona.Exclusive {
			continue
		}
		for _, c := range e.Persona.Capacity {
			counter := c.Name
			if uses[c.Name] > 1 {
				counter += e.Persona.Suffix
			}
			counter = label(counter + "-capacity")
			plan.nominal[counter] = c.Value.DeepCopy()
			plan.mirrors[e.Name] = append(plan.mirrors[e.Name], counter)
		}
		if group := e.Persona.ExclusionGroup; group != "" {
			plan.members[group] = append(plan.members[group], e.Name)
		}
	}
}

// consumption returns what an entry consumes.
func (plan *counterPlan) consumption(e Entry) []resourceapi.DeviceCounterConsumption {
	return []resourceapi.DeviceCounterConsumption{{CounterSet: plan.set.Name, Counters: counters(plan.amounts(e))}}
}

// amounts returns how much of each counter an entry consumes.
func (plan *counterPlan) amounts(e Entry) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	switch {
	case e.Device.PFName != "":
		amounts[exclusionSlots] = quantity(1)
	case e.Persona.Exclusive:
		maps.Copy(amounts, plan.nominal)
	default:
		for _, member := range append([]string{e.Name}, plan.peers(e.Persona)...) {
			for _, counter := range plan.mirrors[member] {
				amounts[counter] = plan.nominal[counter]
			}
		}
	}
	return amounts
}

// peers returns the entries of the persona's exclusion group.
func (plan *counterPlan) peers(p policy.Persona) []string {
	if p.ExclusionGroup == "" {
		return nil
	}
	return plan.members[p.ExclusionGroup]
}

// counters wraps quantities as counters.
func counters(values map[string]resource.Quantity) map[string]resourceapi.Counter {
	wrapped := map[string]resourceapi.Counter{}
	for name, value := range values {
		wrapped[name] = resourceapi.Counter{Value: value.DeepCopy()}
	}
	return wrapped
}

// quantity returns a whole number as a quantity.
func quantity(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.DecimalSI)
}
