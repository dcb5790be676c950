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

// use is who holds what, and what is left of what devices share. It is computed once and then only read.
type use struct {
	asked bool
	// features have the CNI plugins that can work on the node; with nil CNIBinaries they are not known.
	features draslices.Features
	holders  map[draslices.EntryID][]string
	// consumed is what is taken of the capacity of an entry.
	consumed map[draslices.EntryID]map[resourceapi.QualifiedName]resource.Quantity
	counters map[counterID]*balance
}

type counterID struct{ pool, set, name string }

// balance is what there is of a counter, what is left, and the names of the entries in use that have taken the rest.
type balance struct {
	total, left resource.Quantity
	takers      []string
}

// useOf counts as the scheduler does: an entry in use is charged to the counters of its pool once, however many
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

// hold notes that a claim has an entry. A claim that has it in several requests is named once, and consumes for each.
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

// charge takes from the counters what an entry in use consumes. Counters that are not published any more are left out.
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

// blockedBy are the entries in use that have what an entry would take of the counters of its pool.
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

// offer is an entry as people see it.
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

// workingPlugins are the CNI plugins of an entry that can work on the node.
func (u *use) workingPlugins(entry *draslices.Entry) []string {
	if u.features.CNIBinaries == nil {
		return entry.Persona.Plugins
	}
	return u.features.Working(entry.Persona.Plugins)
}

// amount says of one capacity what is left, and whether that is too little for a claim that asks for nothing
// particular.
func (u *use) amount(entry *draslices.Entry, name resourceapi.QualifiedName) (amount Amount, usedUp bool) {
	capacity := entry.Spec.Capacity[name]
	left, wanted := capacity.Value.DeepCopy(), capacity.Value
	taken := u.consumed[idOf(entry)][name]
	if !entry.Persona.Exclusive { // else nothing is divided
		left.Sub(taken)
	}
	amount = Amount{Name: unqualified(string(name)), Left: left.String(), Total: capacity.Value.String()}
	if p := capacity.RequestPolicy; p != nil && p.Default != nil {
		amount.Default, wanted = p.Default.String(), *p.Default
	}
	return amount, left.Cmp(wanted) < 0
}

// consumption is what an entry takes of the counters of its pool while it is in use.
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

// countersOf returns all counters, the fullest first.
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

// unqualified is a name without its domain.
func unqualified(name string) string {
	_, short, qualified := strings.Cut(name, "/")
	if !qualified {
		return name
	}
	return short
}
