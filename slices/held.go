package slices

import (
	"cmp"
	stdslices "slices"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Holding is the state of an entry at the time when it was allocated to a claim.
type Holding struct {
	// Device is the name of the entry's device.
	Device discovery.IfName
	// Bandwidth is the entry's bandwidth; see [Entry].
	Bandwidth int64
	// Persona is the entry's persona; see [Entry]. It is nil if it is unknown, in which case the entry is lost once no
	// policy offers it.
	Persona *policy.Persona
}

// keep adds the entries that claims hold to the entries of a device. A held exclusive entry stays unchanged. A held
// shared entry follows its policy, unless this would allow the scheduler to allocate the device twice: if the policy
// has been deleted or has become exclusive, the entry stays unchanged and is withdrawn, so that no other claim gets it.
//
// For example, a claim holds eth1-shared when the policy is deleted. Until the claim is released, the entry is
// published as before, but with a taint that keeps other claims away.
func (b *builder) keep(pool string, d discovery.Device, entries []Entry) []Entry {
	for _, id := range b.held[heldDevice{pool: pool, name: d.Name}] {
		holding := b.features.Held[id]
		// The entry is looked up by the name under which the claim holds it, whereas b.entries derives names from the
		// device and the current persona. The names only match because a device keeps its name while a claim holds it
		// (publish.deviceMemory has already restored the name), and because the persona comes from the holding. If
		// either of them changed, the claim's entry would disappear, and its device would be offered again under the
		// other name.
		i := stdslices.IndexFunc(entries, func(e Entry) bool { return e.Name == id.Name })
		given := i >= 0 && entries[i].Persona.Exclusive == holding.Persona.Exclusive &&
			entries[i].Persona.IsBandwidth() == holding.Persona.IsBandwidth()
		if given && !holding.Persona.Exclusive {
			continue
		}
		for _, e := range b.entries(d, []policy.Persona{*holding.Persona}) {
			e.Withdrawn, e.Bandwidth = !given, holding.Bandwidth
			// The attribute must contain the policy that offers the device now, not the policy at the time of the
			// allocation.
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

// byDevice returns the held entries by pool and device, sorted by name.
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
