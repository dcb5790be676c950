package nodepage

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// use contains the holders of entries and the remaining shared amounts. It is immutable after useOf.
type use struct {
	asked bool
	// features contains the CNI plugins that work on the node. If CNIBinaries is nil, they are unknown.
	features draslices.Features
	holders  map[draslices.EntryID][]string
	// consumed is the sum of the consumed capacity of each entry.
	consumed map[draslices.EntryID]map[resourceapi.QualifiedName]resource.Quantity
	counters map[counterID]*balance
}

type counterID struct{ pool, set, name string }

// balance contains the total and remaining values of a counter, and the names of the entries in use that consume it.
type balance struct {
	total, left resource.Quantity
	takers      []string
}

// useOf counts like the scheduler: an entry in use consumes the counters of its pool once, regardless of how many
// claims share it.
func useOf(node *Node) *use {
	u := &use{
		asked: node.Asked, holders: map[draslices.EntryID][]string{}, counters: map[counterID]*balance{},
		consumed: map[draslices.EntryID]map[resourceapi.QualifiedName]resource.Quantity{},
	}
	if node.CNIPlugins != nil {
		u.features = draslices.Features{CNIBinaries: sets.New(node.CNIPlugins...), UnusableCNIs: node.UnusableCNIs}
	}
	for _, holding := range nodestate.Holdings(node.Claims, node.Refused) {
		for _, held := range holding.Devices {
			u.hold(draslices.EntryID{Pool: held.Pool, Name: held.Name}, holding.Claim.String(), held.Consumed)
		}
	}
	for pool, resources := range node.Result.Resources.Pools {
		for _, slice := range resources.Slices {
			for _, set := range slice.SharedCounters {
				for name, c := range set.Counters {
					u.counters[counterID{pool, set.Name, name}] = &balance{total: c.Value, left: c.Value.DeepCopy()}
				}
			}
		}
	}
	for i := range node.Result.Entries {
		if entry := &node.Result.Entries[i]; len(u.holders[idOf(entry)]) > 0 {
			u.charge(entry)
		}
	}
	return u
}

func idOf(entry *draslices.Entry) draslices.EntryID {
	return draslices.EntryID{Pool: entry.Pool, Name: entry.Name}
}

// hold records that a claim holds an entry. A claim with several requests for the entry is listed only once, but each
// request adds to the consumed capacity.
func (u *use) hold(id draslices.EntryID, claim string, consumed map[resourceapi.QualifiedName]resource.Quantity) {
	if !slices.Contains(u.holders[id], claim) {
		u.holders[id] = append(u.holders[id], claim)
	}
	if u.consumed[id] == nil {
		u.consumed[id] = map[resourceapi.QualifiedName]resource.Quantity{}
	}
	for name, amount := range consumed {
		sum := u.consumed[id][name]
		sum.Add(amount)
		u.consumed[id][name] = sum
	}
}

// charge subtracts the consumption of an entry in use from the counters. Counters that are no longer published are
// ignored.
func (u *use) charge(entry *draslices.Entry) {
	for _, c := range entry.Spec.ConsumesCounters {
		for name, amount := range c.Counters {
			if b := u.counters[counterID{entry.Pool, c.CounterSet, name}]; b != nil {
				b.left.Sub(amount.Value)
				b.takers = append(b.takers, entry.Name)
			}
		}
	}
}

// blockedBy returns the entries in use whose consumption leaves too little of a counter for this entry.
func (u *use) blockedBy(entry *draslices.Entry) []string {
	var takers []string
	for _, c := range entry.Spec.ConsumesCounters {
		for name, amount := range c.Counters {
			if b := u.counters[counterID{entry.Pool, c.CounterSet, name}]; b != nil && b.left.Cmp(amount.Value) < 0 {
				takers = append(takers, b.takers...)
			}
		}
	}
	slices.Sort(takers)
	return slices.Compact(takers)
}

// offer describes an entry to readers.
func (u *use) offer(entry *draslices.Entry) Offer {
	offer := Offer{
		Name: entry.Name, Use: "shared", Policy: entry.Persona.Policy, Plugins: u.workingPlugins(entry),
		Consumes: consumption(&entry.Spec),
	}
	held := len(u.holders[idOf(entry)]) > 0
	if entry.Persona.Exclusive {
		offer.Use = "exclusive"
	}
	full := false
	for _, name := range sortedNames(entry.Spec.Capacity) {
		amount, usedUp := u.amount(entry, resourceapi.QualifiedName(name))
		full = full || usedUp && !entry.Persona.Exclusive
		offer.Capacity = append(offer.Capacity, amount)
	}
	if !held {
		offer.BlockedBy = u.blockedBy(entry)
	}
	switch {
	case len(entry.Spec.Taints) > 0 || entry.Withdrawn:
		offer.State = HeldBack
	case !held && len(offer.Plugins) == 0:
		offer.State = Unusable
	case !u.asked:
		offer.State = Offered
	case held && full:
		offer.State = Full
	case held:
		offer.State = InUse
	case len(offer.BlockedBy) > 0:
		offer.State = Blocked
	default:
		offer.State = Free
	}
	return offer
}

// workingPlugins returns the entry's CNI plugins that work on the node.
func (u *use) workingPlugins(entry *draslices.Entry) []string {
	if u.features.CNIBinaries == nil {
		return entry.Persona.Plugins
	}
	return u.features.Working(entry.Persona.Plugins)
}

// amount describes the remaining amount of a capacity. usedUp reports whether it is less than the default request.
func (u *use) amount(entry *draslices.Entry, name resourceapi.QualifiedName) (amount Amount, usedUp bool) {
	capacity := entry.Spec.Capacity[name]
	left, wanted := capacity.Value.DeepCopy(), capacity.Value
	taken := u.consumed[idOf(entry)][name]
	if !entry.Persona.Exclusive { // an exclusive entry is not divided
		left.Sub(taken)
	}
	amount = Amount{Name: unqualified(string(name)), Left: left.String(), Total: capacity.Value.String()}
	if p := capacity.RequestPolicy; p != nil && p.Default != nil {
		amount.Default, wanted = p.Default.String(), *p.Default
	}
	return amount, left.Cmp(wanted) < 0
}

// consumption describes the counters that an entry consumes while it is in use.
func consumption(device *resourceapi.Device) string {
	var texts []string
	for _, c := range device.ConsumesCounters {
		for _, name := range sortedNames(c.Counters) {
			amount := c.Counters[name]
			texts = append(texts, amount.Value.String()+" "+name)
		}
	}
	return strings.Join(texts, ", ")
}

// countersOf returns all counters, sorted by the remaining percentage, lowest first.
func (u *use) countersOf() []Counter {
	counters := make([]Counter, 0, len(u.counters))
	for id, b := range u.counters {
		c := Counter{Pool: id.pool, Name: id.name, Left: b.left.String(), Total: b.total.String(), Percent: 100}
		if total := b.total.AsApproximateFloat64(); total > 0 {
			c.Percent = int(100 * max(0, b.left.AsApproximateFloat64()) / total)
		}
		counters = append(counters, c)
	}
	slices.SortFunc(counters, func(a, b Counter) int {
		return cmp.Or(cmp.Compare(a.Percent, b.Percent), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	return counters
}

func sortedNames[K ~string, V any](m map[K]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// unqualified returns a name without its domain.
func unqualified(name string) string {
	_, short, qualified := strings.Cut(name, "/")
	if !qualified {
		return name
	}
	return short
}
