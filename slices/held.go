package slices

import (
	"cmp"
	stdslices "slices"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Holding is what an entry was when a claim got it.
type Holding struct {
	// Device is the name of the entry's device.
	Device discovery.IfName
	// Bandwidth is that of the Entry.
	Bandwidth int64
	// Persona is that of the Entry; nil if it is not known, and then an entry that policies don't give any more is
	// lost.
	Persona *policy.Persona
}

// keep returns a device's entries with those that claims hold. An exclusive one stays as it was. A shared one follows
// its policy, but for what would let the scheduler give the device twice: when the policy is gone, or has become
// exclusive, the entry stays as it was and is withdrawn, which means that nobody else gets it.
//
// For example, a claim holds eth1-shared, and the policy is deleted. The entry is published as before, with a taint
// that keeps others away, until the claim is released.
func (b *builder) keep(pool string, d discovery.Device, entries []Entry) []Entry {
	for _, id := range b.held[heldDevice{pool: pool, name: d.Name}] {
		holding := b.features.Held[id]
		// The entry is found by the name under which the claim holds it, and what b.entries returns is named after the
		// device and the persona of today. Both are one name only because a claim's device keeps its name while it is
		// held (publish.deviceMemory restores it before facts come here) and the persona is the one of the holding. If
		// either changed, the claim's entry would vanish, and its device be offered once more under the other name.
		i := stdslices.IndexFunc(entries, func(e Entry) bool { return e.Name == id.Name })
		given := i >= 0 && entries[i].Persona.Exclusive == holding.Persona.Exclusive
		if given && !holding.Persona.Exclusive {
			continue
		}
		for _, e := range b.entries(d, []policy.Persona{*holding.Persona}) {
			e.Withdrawn, e.Bandwidth = !given, holding.Bandwidth
			// Who offers it now counts, and not who did when it was claimed.
			delete(e.Spec.Attributes, policy.ExposurePolicy)
			if given {
				if by, named := entries[i].Spec.Attributes[policy.ExposurePolicy]; named {
					e.Spec.Attributes[policy.ExposurePolicy] = by
				}
			}
			if i >= 0 {
				entries[i] = e
			} else {
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// byDevice returns what claims hold by pool and device, sorted by name.
func byDevice(held map[EntryID]Holding) map[heldDevice][]EntryID {
	ids := map[heldDevice][]EntryID{}
	for id, holding := range held {
		if holding.Persona != nil {
			key := heldDevice{pool: id.Pool, name: holding.Device}
			ids[key] = append(ids[key], id)
		}
	}
	for _, list := range ids {
		stdslices.SortFunc(list, func(a, b EntryID) int { return cmp.Compare(a.Name, b.Name) })
	}
	return ids
}

type heldDevice struct {
	pool string
	name discovery.IfName
}
