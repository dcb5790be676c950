package slices

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// function is a virtual or scalable function and its entries.
type function struct {
	device  discovery.Device
	entries []Entry
}

// prefix returns the name prefix for counters that are local to the function.
func (f function) prefix() string {
	if f.device.VFIndex == discovery.None {
		return label(string(f.device.Name)) + "-"
	}
	return fmt.Sprintf("v%d-", f.device.VFIndex)
}

// local returns the counters that enforce the exclusions between the function's own entries, and the amounts that each
// entry consumes from them. A function with a single entry has no local counters.
func (f function) local() (all amounts, each []amounts) {
	if len(f.entries) < 2 {
		return nil, make([]amounts, len(f.entries))
	}
	extra := amounts{}
	if exclusives(f.entries) > 1 {
		extra[f.prefix()+lock] = quantity(1)
	}
	return separateCounters(f.entries, f.prefix(), extra)
}

// withinSet drops all entries of a function if it needs more local counters than fit into a set, but keeps held entries
// if possible.
func (b *builder) withinSet(pool string, vfs []function) {
	const limit = resourceapi.ResourceSliceMaxCountersPerCounterSet
	for i := range vfs {
		if all, _ := vfs[i].local(); len(all) > limit {
			b.problem("", vfs[i].device.Name, "is not published: its policies need %d shared counters and the limit "+
				"is %d: remove capacities or policies", len(all), limit)
			vfs[i].entries = b.onlyHeld(pool, vfs[i].entries)
			if all, _ := vfs[i].local(); len(all) > limit {
				vfs[i].entries = nil
			}
		}
	}
}

// planFunctions sets the consumption of the entries of virtual functions, which has three parts: the consumption
// defined in the domain's plan, the bandwidth, and the function's local counters, which are in one additional set. It
// returns these additional sets. Each set contains all local counters of one or more functions, in index order, up to
// the maximum number of counters per set.
//
// A function's counters are never split across two sets: otherwise, its entries would have to consume from three sets,
// including the domain's set, but the API allows only two.
func planFunctions(d conflictDomain, vfs []function, plan *plan) []resourceapi.CounterSet {
	var blocks []resourceapi.CounterSet
	for _, vf := range vfs {
		all, each := vf.local()
		n := len(blocks) - 1
		if len(all) > 0 &&
			(n < 0 || len(blocks[n].Counters)+len(all) > resourceapi.ResourceSliceMaxCountersPerCounterSet) {
			blocks = append(blocks, resourceapi.CounterSet{
				Name:     label(fmt.Sprintf("%s-vfs-%d", d.name, len(blocks))),
				Counters: map[string]resourceapi.Counter{},
			})
		}
		for name, counter := range counters(all) {
			blocks[len(blocks)-1].Counters[name] = counter
		}
		for i := range vf.entries {
			e := &vf.entries[i]
			consumed := *plan.function.DeepCopy()
			if plan.bandwidth && e.Bandwidth > 0 {
				consumed.Counters[bandwidthCounter] = resourceapi.Counter{Value: quantity(e.Bandwidth)}
			}
			if len(consumed.Counters) > 0 { // the API rejects a consumption without counters
				e.Spec.ConsumesCounters = append(e.Spec.ConsumesCounters, consumed)
			}
			if len(each[i]) > 0 {
				e.consume(blocks[len(blocks)-1].Name, each[i])
			}
		}
	}
	return blocks
}
