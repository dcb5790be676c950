package slices_test

import (
	"maps"
	"math/rand/v2"
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// TestMachinesChangeUnderClaims changes the speed of links and the number of virtual functions while claims hold some
// of the functions. The consumption of allocated entries must not change. No counter may become smaller than its
// consumption, which would block the pool. The allocated bandwidth must not exceed the bandwidth that the link has now
// or had at the time of the allocation, whichever is greater.
func TestMachinesChangeUnderClaims(t *testing.T) {
	for cluster, features := range clusters() {
		t.Run(cluster, func(t *testing.T) { changeUnderClaims(t, features, false) })
	}
}

// TestPoliciesAndMachinesChangeUnderClaims additionally edits policies, which may add and remove groups.
func TestPoliciesAndMachinesChangeUnderClaims(t *testing.T) {
	for cluster, features := range clusters() {
		t.Run(cluster, func(t *testing.T) { changeUnderClaims(t, features, true) })
	}
}

func changeUnderClaims(t *testing.T, features draslices.Features, edited bool) {
	t.Parallel()
	for seed := range uint64(rounds(60)) {
		d := dice{rand.New(rand.NewPCG(seed, 5))}
		m := anyMachine(d)
		held := map[draslices.EntryID]draslices.Holding{}
		claims := map[string]*resourceapi.AllocationResult{}
		total := 0                  // number of claims
		taken := map[string]int64{} // each physical function's bandwidth at the last allocation
		var before draslices.Result
		for range 6 {
			features.Held = held
			result := publish(t, features, m)
			checkHeld(t, result, held)
			if !edited {
				checkSameGroups(t, before, result, held)
			}
			before = result
			s := newScheduler(t, result)
			s.claims = claims
			for _, step := range d.steps(m) {
				for _, c := range step.claims {
					total++
					claim := s.wishing(testClaim{total, c.requests})
					if _, err := s.allocate(claim); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkApart(t, result, claims, held)
			checkEnslaved(t, m, result, claims, held)
			checkBandwidth(t, m, result, claims, taken)
			for _, name := range stdslices.Sorted(maps.Keys(claims)) {
				if d.chance(50) {
					delete(claims, name)
				}
			}
			held = holding(t, result, claims)
			m = d.change(m, held)
			if edited {
				m = d.edit(m)
			}
		}
	}
}

// checkApart checks that no exclusive entry of a device is held at the same time as another entry of the device, and
// that no physical function is held as a whole at the same time as one of its virtual functions. It also checks that no
// entry was allocated while another entry of the device in the same exclusion group was held. Entries that were already
// held before the policies were edited are exempt from the second check.
func checkApart(
	t *testing.T, result draslices.Result, claims map[string]*resourceapi.AllocationResult,
	before map[draslices.EntryID]draslices.Holding,
) {
	t.Helper()
	held := holding(t, result, claims)
	for id := range held {
		entry, _ := result.Find(id.Pool, id.Name)
		for otherID := range held {
			other, _ := result.Find(otherID.Pool, otherID.Name)
			same, whole := entry.Device.Name == other.Device.Name, entry.Device.Name == other.Device.PFName
			if id != otherID && entry.Persona.Exclusive && (same || whole) {
				t.Fatalf("%s and %s were held at the same time", entry.Name, other.Name)
			}
			_, hadIt := before[id]
			group := entry.Persona.ExclusionGroup
			if id != otherID && same && !hadIt && group != "" && group == other.Persona.ExclusionGroup {
				t.Fatalf("%s was allocated while %s was held, although both belong to group %s", entry.Name, other.Name,
					group)
			}
		}
	}
}

// checkEnslaved checks that no physical function was newly allocated as a whole while one of its virtual functions was
// a port of a bridge.
func checkEnslaved(
	t *testing.T, m machine, result draslices.Result, claims map[string]*resourceapi.AllocationResult,
	before map[draslices.EntryID]draslices.Holding,
) {
	t.Helper()
	for id := range holding(t, result, claims) {
		e, _ := result.Find(id.Pool, id.Name)
		if _, hadIt := before[id]; hadIt || !e.Persona.Exclusive {
			continue
		}
		for _, c := range m.nics {
			for _, vf := range c.vfs {
				if vf.enslaved && string(e.Device.Name) == c.name {
					t.Fatalf("%s was allocated while %s was a port of a bridge", id.Name, vf.name(c))
				}
			}
		}
	}
}

// checkBandwidth checks that the total bandwidth of a link's functions does not exceed the link's speed or the previous
// total, whichever is greater, and records the total.
func checkBandwidth(t *testing.T, m machine, result draslices.Result, claims map[string]*resourceapi.AllocationResult,
	taken map[string]int64,
) {
	t.Helper()
	now := map[string]int64{}
	for _, id := range stdslices.SortedFunc(maps.Keys(holding(t, result, claims)), func(a, b draslices.EntryID) int {
		return strings.Compare(a.Pool+" "+a.Name, b.Pool+" "+b.Name)
	}) {
		e, _ := result.Find(id.Pool, id.Name)
		now[string(e.Device.PFName)] += e.Bandwidth
	}
	for _, c := range m.nics {
		if got := now[c.name]; got > max(c.speed, taken[c.name]) {
			t.Fatalf("functions of %s hold %d Mbit/s on a link of %d Mbit/s; they held %d before", c.name, got, c.speed,
				taken[c.name])
		}
		taken[c.name] = now[c.name]
	}
}

// publish builds the slices for a machine.
func publish(t *testing.T, features draslices.Features, m machine) draslices.Result {
	t.Helper()
	decision := policy.Resolve(discovery.Facts{Devices: m.devices()}, policies(t, m.policies()...),
		policy.Node{Name: "worker-1"})
	result, err := draslices.Build("worker-1", decision, features)
	if err != nil {
		t.Fatal(err)
	}
	checkValid(t, result)
	return result
}

// holding returns the driver's record of the claims: their entries with the bandwidth as published.
func holding(
	t *testing.T, result draslices.Result, claims map[string]*resourceapi.AllocationResult,
) map[draslices.EntryID]draslices.Holding {
	t.Helper()
	held := map[draslices.EntryID]draslices.Holding{}
	for _, allocation := range claims {
		for _, r := range allocation.Devices.Results {
			e, ok := result.Find(r.Pool, r.Device)
			if !ok {
				t.Fatalf("%s was held but not published", r.Device)
			}
			held[draslices.EntryID{Pool: r.Pool, Name: r.Device}] = heldAs(e)
		}
	}
	return held
}

// checkHeld checks that held entries have not changed, and that no counter is exceeded.
func checkHeld(t *testing.T, result draslices.Result, held map[draslices.EntryID]draslices.Holding) {
	t.Helper()
	left := map[[3]string]int64{}
	for name, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for _, set := range slice.SharedCounters {
				for counter, value := range set.Counters {
					left[[3]string{name, set.Name, counter}] = value.Value.Value()
				}
			}
		}
	}
	for id, holding := range held {
		e, ok := result.Find(id.Pool, id.Name)
		if !ok || e.Bandwidth != holding.Bandwidth || e.Persona.Exclusive != holding.Persona.Exclusive {
			t.Fatalf("%s: published = %t, with a bandwidth of %d; it was held with %d", id.Name, ok, e.Bandwidth,
				holding.Bandwidth)
		}
		for _, c := range e.Spec.ConsumesCounters {
			for counter, value := range c.Counters {
				key := [3]string{id.Pool, c.CounterSet, counter}
				if left[key] -= value.Value.Value(); left[key] < 0 {
					t.Fatalf("counter %v was overdrawn by %s", key, id.Name)
				}
			}
		}
	}
}

// checkSameGroups checks that held entries keep their groups in each counter set where they had groups.
func checkSameGroups(t *testing.T, before, after draslices.Result, held map[draslices.EntryID]draslices.Holding) {
	t.Helper()
	for id := range held {
		then, _ := before.Find(id.Pool, id.Name)
		now, _ := after.Find(id.Pool, id.Name)
		groups := map[string][]string{}
		for _, c := range now.Spec.ConsumesCounters {
			groups[c.CounterSet] = c.CompatibilityGroups
		}
		for _, c := range then.Spec.ConsumesCounters {
			if len(c.CompatibilityGroups) > 0 && !stdslices.Equal(c.CompatibilityGroups, groups[c.CounterSet]) {
				t.Fatalf("%s had groups %q in %s and now has %q", id.Name, c.CompatibilityGroups, c.CounterSet,
					groups[c.CounterSet])
			}
		}
	}
}

// change changes the speed of NICs and the number of virtual functions. Some functions become ports of a bridge, or
// cease to be ports. Held functions are kept.
func (d dice) change(m machine, held map[draslices.EntryID]draslices.Holding) machine {
	inUse := func(name string) bool {
		for id := range held {
			if id.Name == name || strings.HasPrefix(id.Name, name+"-") {
				return true
			}
		}
		return false
	}
	var changed machine
	for _, c := range m.nics {
		if d.chance(50) {
			c.speed = []int64{0, 90, 1000, 2550, 10000}[d.pick(5)]
		}
		var vfs []vfunc
		last := 0
		for _, vf := range c.vfs {
			if !inUse(vf.name(c)) && d.chance(10) {
				vf.enslaved = !vf.enslaved
			}
			if inUse(vf.name(c)) || d.chance(70) {
				vfs = append(vfs, vf)
			}
			last = vf.index
		}
		if c.pf && d.chance(40) {
			vfs = append(vfs, vfunc{index: last + 1, offers: d.offers(1+d.pick(3), true)})
		}
		c.vfs = vfs
		changed.nics = append(changed.nics, c)
	}
	return changed
}

// edit edits policies, including policies that offer held entries.
func (d dice) edit(m machine) machine {
	var edited machine
	for _, c := range m.nics {
		if d.chance(40) {
			c.offers = d.offers(d.pick(4), false)
		}
		vfs := stdslices.Clone(c.vfs)
		for i := range vfs {
			if d.chance(30) {
				vfs[i].offers = d.offers(d.pick(3), true)
			}
		}
		c.vfs = vfs
		edited.nics = append(edited.nics, c)
	}
	return edited
}
