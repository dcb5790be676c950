package slices

import (
	stdslices "slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/policy"
)

// MissingFeatures specifies which ResourceSlice features the cluster does not support.
type MissingFeatures struct {
	// Counters: the API server drops shared counters (feature DRAPartitionableDevices).
	Counters bool
	// Sharing: the API server drops allowMultipleAllocations (feature DRAConsumableCapacity).
	Sharing bool
	// Charging: between pods, the scheduler forgets how much the shared devices have consumed from their counters. This
	// affects Kubernetes versions before 1.36.2.
	Charging bool
	// Taints: the API server drops device taints (feature DRADeviceTaints).
	Taints bool
}

// Without returns the result without the entries whose rules the cluster cannot enforce: not publishing a device is
// safer than allocating it to mutually exclusive pods. The receiver is not modified.
//
// If at least one remaining entry uses a counter set, the set stays unchanged, since the consumption of the remaining
// entries was computed together with that of all other entries. An unused set is removed; otherwise, an API server that
// does not support counters would drop it on every write.
func (r Result) Without(missing MissingFeatures) Result {
	if missing == (MissingFeatures{}) {
		return r
	}
	b := builder{problems: map[policy.Problem]bool{}}
	for _, p := range r.Problems {
		b.problems[p] = true
	}
	kept := Result{Resources: resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}}
	byPool := map[string][]Entry{}
	for _, e := range r.Entries {
		if reason := missing.reason(e); reason != "" {
			b.problem(e.Persona.Policy, e.Device.Name, "its entry %s is not published: %s", e.Name, reason)
			continue
		}
		if missing.Taints {
			e.Spec.Taints = nil
		}
		kept.Entries = append(kept.Entries, e)
		byPool[e.Pool] = append(byPool[e.Pool], e)
	}
	for name, entries := range byPool {
		sets := stdslices.DeleteFunc(counterSets(r.Resources.Pools[name]), func(set resourceapi.CounterSet) bool {
			return !stdslices.ContainsFunc(entries, func(e Entry) bool { return e.consumes(set.Name) })
		})
		kept.Resources.Pools[name] = pool(entries, sets)
	}
	kept.Problems = b.sortedProblems()
	return kept
}

// reason returns the reason why an entry must not be published, or "" if it may be.
func (l MissingFeatures) reason(e Entry) string {
	counted := len(e.Spec.ConsumesCounters) > 0
	switch {
	case l.Counters && counted:
		return "the API server drops the counters that prevent allocating it twice: enable the feature " +
			"DRAPartitionableDevices"
	case l.Sharing && !e.Persona.Exclusive:
		return "the API server drops the fields that make it shareable: enable the feature DRAConsumableCapacity"
	case l.Charging && counted && !e.Persona.Exclusive:
		return "the scheduler of this version allocates it although other claims hold devices that it excludes: " +
			"upgrade Kubernetes " +
			"to 1.36.2 or newer"
	}
	return ""
}

// counterSets returns the counter sets of a pool.
func counterSets(p resourceslice.Pool) []resourceapi.CounterSet {
	var sets []resourceapi.CounterSet
	for _, slice := range p.Slices {
		sets = append(sets, slice.SharedCounters...)
	}
	return sets
}

// Tainted returns the result with the taints that the given function returns for each entry. The receiver is not
// modified.
//
// Taints change when cables are plugged in and when pods start, but this must not change anything else. Therefore,
// names, pools and counters are determined beforehand.
func (r Result) Tainted(taints func(Entry) []resourceapi.DeviceTaint) Result {
	if !stdslices.ContainsFunc(r.Entries, func(e Entry) bool { return len(taints(e)) > 0 }) {
		return r
	}
	tainted := Result{Entries: stdslices.Clone(r.Entries), Problems: r.Problems,
		Resources: resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}}
	byPool := map[string][]Entry{}
	for i := range tainted.Entries {
		e := &tainted.Entries[i]
		e.Spec.Taints = taints(*e)
		byPool[e.Pool] = append(byPool[e.Pool], *e)
	}
	for name, entries := range byPool {
		tainted.Resources.Pools[name] = pool(entries, counterSets(r.Resources.Pools[name]))
	}
	return tainted
}
