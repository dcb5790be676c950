package slices

import (
	"fmt"
	"maps"
	stdslices "slices"

	resourceapi "k8s.io/api/resource/v1"
)

// shared is the compatibility group for entries that may be in use at the same time.
const shared = "shared"

// planGroups enforces the exclusions between the entries of a domain with compatibility groups: among entries that
// consume from the same counter set, entries with a common group may be in use at the same time. It returns nil if
// nothing in the domain can conflict, and an error if groups cannot express the rules.
//
// In the domain's set, virtual functions and shared entries without an exclusion group have the group "shared", and
// every exclusive entry has a group of its own. Each exclusion group has an additional set, in which each of its
// members and every exclusive entry has a group of its own. Therefore, the groups of an entry depend only on its name
// and policy, and they stay the same while the entry is in use, even if other entries change. This matters because the
// scheduler reads the groups in each cycle.
//
// For example, a device has the shared entries a and b without an exclusion group, c and d in group g, and the
// exclusive entry x. In the domain's set, a and b have "shared" and x has "only-x". In the set for g, c, d and x each
// have a group of their own. Thus a and b are compatible, c is compatible with a and b but not with d, and x is not
// compatible with any other entry.
func planGroups(d conflictDomain, main []Entry, vfs []function, budget amounts) (*plan, error) {
	if len(main) < 2 && !d.mayHaveFunctions() {
		return nil, nil
	}
	groups := exclusionGroups(main)
	if needed := 1 + len(groups); exclusives(main) > 0 &&
		needed > resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice {
		return nil, fmt.Errorf("an exclusive entry would have to consume from %d counter sets, one and one for each "+
			"exclusion group (%q), and the limit is %d: "+
			"use one exclusion group, or no exclusive plugins", needed, groups,
			resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)
	}
	amount := amounts{exclusionSlots: quantity(freeSlots(vfs))}
	maps.Copy(amount, budget)
	sets := []resourceapi.CounterSet{d.set(amount)}
	for _, group := range groups {
		sets = append(sets,
			resourceapi.CounterSet{Name: d.groupSet(group), Counters: counters(amounts{exclusionSlots: quantity(1)})})
	}
	for i := range main {
		e := &main[i]
		switch {
		// Exclusive entries take the slot in addition to having a group, so that they cannot be allocated while a
		// function is enslaved on the host; see freeSlots.
		case e.Persona.Exclusive:
			for _, set := range sets {
				e.consume(set.Name, amounts{exclusionSlots: quantity(1)}, ownGroup(e))
			}
		case e.Persona.ExclusionGroup != "":
			e.consume(d.groupSet(e.Persona.ExclusionGroup), amounts{exclusionSlots: quantity(0)}, ownGroup(e))
		default:
			consumed := amounts{exclusionSlots: quantity(0)}
			if e.Persona.IsBandwidth() {
				maps.Copy(consumed, budget)
			}
			e.consume(sets[0].Name, consumed, shared)
		}
	}
	function := consumption(sets[0].Name, amounts{exclusionSlots: quantity(0)}, shared)
	return &plan{sets: sets, function: function, bandwidth: len(budget) > 0}, nil
}

// mayHaveFunctions reports whether the domain has virtual functions or could have some later.
func (d conflictDomain) mayHaveFunctions() bool {
	return len(d.vfs) > 0 || d.main != nil && d.main.Device.SRIOVCapable
}

// exclusionGroups returns the sorted exclusion groups of the shared entries.
func exclusionGroups(entries []Entry) []string {
	groups := map[string]bool{}
	for _, e := range entries {
		if group := e.Persona.ExclusionGroup; group != "" && !e.Persona.Exclusive {
			groups[group] = true
		}
	}
	return stdslices.Sorted(maps.Keys(groups))
}

// freeSlots returns the number of slots for exclusive entries, each of which takes a slot in addition to having a
// group. There is no slot while a virtual function is enslaved to a link, since that link is not an entry that could
// have a group.
func freeSlots(vfs []function) int64 {
	if stdslices.ContainsFunc(vfs, func(vf function) bool { return vf.device.Master != "" }) {
		return 0
	}
	return 1
}

// groupSet returns the name of the counter set for an exclusion group.
func (d conflictDomain) groupSet(group string) string {
	return label(fmt.Sprintf("%s-group-%s", d.name, group))
}

// ownGroup returns a group that no other entry in the domain belongs to.
func ownGroup(e *Entry) string {
	return label("only-" + e.Name)
}
