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

// TestMachinesChangeUnderClaims changes the speed of links and the number of virtual functions while claims hold some of
// them: what is held goes on to take the same, no counter ever falls below what is held, which would block the pool, and no
// more bandwidth is given than the link has, or had when it was given.
func TestMachinesChangeUnderClaims(t *testing.T) {
	for seed := range uint64(rounds(160)) {
		d := dice{rand.New(rand.NewPCG(seed, 5))}
		m := anyMachine(d)
		held := map[draslices.EntryID]int64{}
		claims := map[string]*resourceapi.AllocationResult{}
		total := 0 // claims
		for range 6 {
			result := publish(t, m, held)
			checkHeld(t, result, held)
			s := newScheduler(t, result)
			s.claims = claims
			for _, step := range d.steps(m) {
				for _, c := range step.claims {
					total++
					claim := s.wishing(testClaim{total, c.wishes})
					if _, err := s.allocate(claim); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, name := range stdslices.Sorted(maps.Keys(claims)) {
				if d.chance(50) {
					delete(claims, name)
				}
			}
			held = holding(t, result, claims)
			m = d.change(m, held)
		}
	}
}

// publish builds for a machine on which entries are held.
func publish(t *testing.T, m machine, held map[draslices.EntryID]int64) draslices.Result {
	t.Helper()
	decision := policy.Resolve(discovery.Facts{Devices: m.devices()}, policies(t, m.policies()...), policy.Node{Name: "worker-1"})
	all := features()
	all.Held = held
	result, err := draslices.Build("worker-1", decision, all)
	if err != nil {
		t.Fatal(err)
	}
	checkValid(t, result)
	return result
}

// holding is what the driver remembers of claims: the entries with the bandwidth with which they were published.
func holding(t *testing.T, result draslices.Result, claims map[string]*resourceapi.AllocationResult) map[draslices.EntryID]int64 {
	t.Helper()
	held := map[draslices.EntryID]int64{}
	for _, allocation := range claims {
		for _, r := range allocation.Devices.Results {
			e, ok := result.Find(r.Pool, r.Device)
			if !ok {
				t.Fatalf("%s is held and not published", r.Device)
			}
			held[draslices.EntryID{Pool: r.Pool, Name: r.Device}] = e.Bandwidth
		}
	}
	return held
}

// checkHeld checks that held entries are what they were, and that no counter is overdrawn.
func checkHeld(t *testing.T, result draslices.Result, held map[draslices.EntryID]int64) {
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
	for id, bandwidth := range held {
		e, ok := result.Find(id.Pool, id.Name)
		if !ok || e.Bandwidth != bandwidth {
			t.Fatalf("%s is published %t, with a bandwidth of %d; it is held with %d", id.Name, ok, e.Bandwidth, bandwidth)
		}
		for _, c := range e.Spec.ConsumesCounters {
			for counter, value := range c.Counters {
				key := [3]string{id.Pool, c.CounterSet, counter}
				if left[key] -= value.Value.Value(); left[key] < 0 {
					t.Fatalf("counter %v is overdrawn by %s", key, id.Name)
				}
			}
		}
	}
}

// change gives cards other speeds and other numbers of virtual functions. Those that are held stay.
func (d dice) change(m machine, held map[draslices.EntryID]int64) machine {
	inUse := func(name string) bool {
		for id := range held {
			if id.Name == name || strings.HasPrefix(id.Name, name+"-") {
				return true
			}
		}
		return false
	}
	var changed machine
	for _, c := range m.cards {
		if d.chance(50) {
			c.speed = []int64{0, 90, 1000, 2550, 10000}[d.pick(5)]
		}
		var vfs []vfunc
		last := 0
		for _, vf := range c.vfs {
			if inUse(vf.name(c)) || d.chance(70) {
				vfs = append(vfs, vf)
			}
			last = vf.index
		}
		if d.chance(40) {
			vfs = append(vfs, vfunc{index: last + 1, offers: d.offers(1+d.pick(3), true)})
		}
		c.vfs = vfs
		changed.cards = append(changed.cards, c)
	}
	return changed
}
