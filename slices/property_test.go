package slices_test

import (
	"fmt"
	"math/rand/v2"
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// TestSchedulerAgreesWithPolicies passes random sequences of claims and releases on random machines to the real
// allocator, and compares each result with an oracle that uses the policies instead of counters: it must be possible to
// use the allocated things at the same time, and a claim must not be rejected if there is a way to fulfill it.
func TestSchedulerAgreesWithPolicies(t *testing.T) {
	for cluster, features := range clusters() {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			machines := rounds(400)
			sequences, decisions, refused, grouped := 0, 0, 0, 0
			for seed := range uint64(machines) {
				d := dice{rand.New(rand.NewPCG(seed, 1))}
				m := d.machine()
				result := buildWith(t, features, m.devices(), m.policies()...)
				if checkThings(t, m, result); hasGroups(result) {
					grouped++
				}
				for range 10 {
					run := run{t: t, features: features, machine: m, steps: d.steps(m)}
					err := run.apply(result)
					sequences, decisions, refused = sequences+1, decisions+run.decisions, refused+run.refused
					if err != nil {
						t.Fatalf("seed %d:\n%s", seed, run.minimised())
					}
				}
			}
			if features.CompatibilityGroups != (grouped > machines/3) {
				t.Errorf("only %d of %d machines had compatibility groups", grouped, machines)
			}
			t.Logf("%d sequences on %d machines, %d with compatibility groups: %d decisions, %d of them rejections",
				sequences, machines, grouped, decisions, refused)
		})
	}
}

// rounds returns the number of iterations for a random test whose normal number is n. The number is reduced with
// -short, and under the race detector, which does not find any errors in pure functions.
func rounds(n int) int {
	if testing.Short() || raceDetector {
		return n / 8
	}
	return n
}

// checkThings checks that everything in the oracle's model is published exactly once, and that nothing else is
// published.
func checkThings(t *testing.T, m machine, result draslices.Result) {
	t.Helper()
	things := m.things()
	for _, e := range result.Entries {
		thing, ok := things[e.Name]
		if !ok || thing.takes != e.Bandwidth || thing.exclusive != e.Persona.Exclusive {
			t.Fatalf("published %s (exclusive %t, bandwidth %d), want %+v; the machine is\n%s", e.Name,
				e.Persona.Exclusive, e.Bandwidth, thing, m)
		}
		delete(things, e.Name)
	}
	for name := range things {
		t.Fatalf("%s was not published, but the model has it; the machine is\n%s", name, m)
	}
}

func (m machine) String() string {
	var out strings.Builder
	for _, d := range m.devices() {
		fmt.Fprintf(&out, "%s %s speed=%d master=%q\n", d.Type, d.Name, d.LinkSpeed, d.Master)
	}
	fmt.Fprintf(&out, "%s\n", strings.Join(m.policies(), "\n"))
	return out.String()
}

// run is a sequence of steps on a machine.
type run struct {
	t        testing.TB
	features draslices.Features
	machine  machine
	steps    []step
	// spoil corrupts the published result to provoke a disagreement; it may be nil.
	spoil func(draslices.Result, machine)
	// allocate, which may be nil, is called before the scheduler decides. It returns a function that is called with the
	// scheduler's decision.
	allocate func(*scheduler, []*resourceapi.ResourceClaim) func([]resourceapi.AllocationResult) error

	decisions, refused int
}

// err runs the sequence with the slices that the driver publishes for the machine, and returns the first disagreement.
func (r *run) err() error {
	result := buildWith(r.t, r.features, r.machine.devices(), r.machine.policies()...)
	if r.spoil != nil {
		r.spoil(result, r.machine)
	}
	return r.apply(result)
}

// apply runs the sequence. It returns the first disagreement as an error.
func (r *run) apply(result draslices.Result) error {
	s := newScheduler(r.t, result)
	things := r.machine.things()
	holders := map[int][]had{} // the things allocated to each claim, by claim number
	order := []int{}           // the claims in order, so that the result is deterministic
	for i, step := range r.steps {
		if step.release > 0 {
			delete(holders, step.release)
			s.release(claimName(step.release))
			continue
		}
		var all []had
		for _, number := range order {
			all = append(all, holders[number]...)
		}
		got, err := r.decide(s, step, things, all)
		if err != nil {
			return fmt.Errorf("step %d, with %q in use: %w", i+1, names(all), err)
		}
		for number, granted := range got {
			holders[number] = granted
		}
		for _, c := range step.claims {
			order = append(order, c.number)
		}
	}
	return nil
}

func claimName(number int) string { return fmt.Sprintf("number-%d", number) }

// decide has the scheduler decide on claims that arrive in one cycle, and compares its decision with the oracle's.
func (r *run) decide(s *scheduler, step step, things map[string]thing, all []had) (map[int][]had, error) {
	var claims []*resourceapi.ResourceClaim
	var requests []wish
	for _, c := range step.claims {
		claims = append(claims, s.wishing(c))
		requests = append(requests, c.requests...)
	}
	compare := func([]resourceapi.AllocationResult) error { return nil }
	if r.allocate != nil {
		compare = r.allocate(s, claims)
	}
	results, err := s.allocate(claims...)
	if err != nil {
		return nil, err
	}
	if err := compare(results); err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	r.decisions++
	if len(results) == 0 {
		r.refused++
		if way := r.machine.possible(things, all, requests); way != nil {
			return nil, fmt.Errorf("%s was rejected, but could have been given %q", step, way)
		}
		return nil, nil
	}
	got := map[int][]had{}
	for i, c := range step.claims {
		for j, w := range c.requests {
			device := results[i].Devices.Results[j].Device
			h, ok := things[device].allot(w)
			if !ok {
				return nil, fmt.Errorf("%s got %s, which does not match its wish", step, device)
			}
			got[c.number] = append(got[c.number], h)
			if all = append(all, h); r.machine.mistake(all) != "" {
				return nil, fmt.Errorf("%s got %s, but %s", step, device, r.machine.mistake(all))
			}
		}
	}
	return got, nil
}

// wishing returns a claim with a request for each wish.
func (s *scheduler) wishing(c testClaim) *resourceapi.ResourceClaim {
	var plugins []string
	for _, w := range c.requests {
		plugins = append(plugins, w.plugin)
	}
	claim := s.claim(plugins...)
	claim.Name = claimName(c.number)
	for i, w := range c.requests {
		if w.stock != "" {
			claim.Spec.Devices.Requests[i].Exactly.Capacity = &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{resourceapi.QualifiedName("dra.networking/" +
					w.stock): *resource.NewQuantity(w.amount, resource.DecimalSI)},
			}
		}
	}
	return claim
}

// minimised removes all parts of the sequence and of the machine that are not needed to reproduce a disagreement, and
// prints the rest.
func (r run) minimised() string {
	for again := true; again; {
		again = false
		for _, smaller := range r.smaller() {
			if smaller.err() != nil {
				r, again = smaller, true
				break
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "machine:\n%s", r.machine)
	for i, s := range r.steps {
		fmt.Fprintf(&out, "step %d: %s\n", i+1, s)
	}
	fmt.Fprintf(&out, "disagreement: %v", r.err())
	return out.String()
}

// smaller returns all variants of the run with one element removed.
func (r run) smaller() []run {
	var all []run
	add := func(m machine, s []step) {
		all = append(all, run{t: r.t, features: r.features, machine: m, steps: s, spoil: r.spoil})
	}
	steps := func(s []step) { add(r.machine, s) }
	nics := func(c []modelNIC) { add(machine{c}, r.steps) }
	for i, s := range r.steps {
		steps(without(r.steps, i))
		for j, c := range s.claims {
			if len(s.claims) > 1 {
				steps(with(r.steps, i, step{claims: without(s.claims, j)}))
			}
			for k, w := range c.requests {
				if len(c.requests) > 1 {
					steps(with(r.steps, i,
						step{claims: with(s.claims, j, testClaim{c.number, without(c.requests, k)})}))
				}
				if w.stock != "" {
					steps(with(r.steps, i,
						step{claims: with(s.claims, j,
							testClaim{c.number, with(c.requests, k, wish{plugin: w.plugin})})}))
				}
			}
		}
	}
	for i, c := range r.machine.nics {
		nics(without(r.machine.nics, i))
		for _, smaller := range c.smaller() {
			nics(with(r.machine.nics, i, smaller))
		}
	}
	return all
}

// smaller returns all variants of the NIC with one offer, one function, or one offer of a function removed.
func (c modelNIC) smaller() []modelNIC {
	var all []modelNIC
	for i := range c.offers {
		smaller := c
		smaller.offers = without(c.offers, i)
		all = append(all, smaller)
	}
	for i, vf := range c.vfs {
		smaller := c
		smaller.vfs = without(c.vfs, i)
		all = append(all, smaller)
		for j := range vf.offers {
			smaller := c
			smaller.vfs = with(c.vfs, i, vfunc{vf.index, vf.enslaved, without(vf.offers, j)})
			all = append(all, smaller)
		}
	}
	return all
}

func without[T any](list []T, i int) []T { return stdslices.Delete(stdslices.Clone(list), i, i+1) }

func with[T any](list []T, i int, value T) []T {
	changed := stdslices.Clone(list)
	changed[i] = value
	return changed
}

// TestOracleFindsWrongEncodings checks that TestSchedulerAgreesWithPolicies can detect mistakes.
func TestOracleFindsWrongEncodings(t *testing.T) {
	shared := func(plugin, group string, value int64) offer {
		return offer{suffix: "-" + plugin, plugins: []string{plugin}, group: group,
			stock: []stock{{plugin + "s", value, 1}}}
	}
	whole := offer{suffix: "-passthrough", plugins: []string{"host-device"}, exclusive: true}
	vfs := func(n int, offers ...offer) []vfunc {
		var all []vfunc
		for i := range n {
			all = append(all, vfunc{index: i, offers: offers})
		}
		return all
	}
	single := func(c modelNIC) func(dice) machine {
		c.name, c.speed = "eth0", 1000
		return func(dice) machine { return machine{[]modelNIC{c}} }
	}
	vf := offer{plugins: []string{"sriov", "host-device"}, exclusive: true}
	groups := features()
	groups.CompatibilityGroups = true
	for name, test := range map[string]struct {
		machine  func(dice) machine
		spoil    func(draslices.Result, machine)
		features draslices.Features
	}{
		// This is the encoding from the published design: a shared persona consumes its peers' counters but not its
		// own.
		"Example 4": {single(modelNIC{offers: []offer{shared("macvlan", "rx-handler", 64),
			shared("ipvlan", "rx-handler", 64)}}), peersOnly, features()},
		"Example 5": {single(modelNIC{offers: []offer{shared("macvlan", "", 64), whole}}), peersOnly, features()},
		"Example 6": {single(modelNIC{offers: []offer{shared("macvlan", "", 64), whole}, vfs: vfs(8, vf)}), peersOnly,
			features()},
		"one slot for each virtual function though two entries may be held": {
			single(modelNIC{offers: []offer{whole}, vfs: vfs(2, shared("macvlan", "", 1), shared("ipvlan", "", 1))}),
			slotsByFunctions, features()},
		"one slot for each virtual function, on any machine": {anyMachine, slotsByFunctions, features()},
		"bandwidth that is not counted":                      {anyMachine, withoutCounter("bandwidth"), features()},
		"entries of a virtual function that are not locked":  {anyMachine, withoutCounter("-lock"), features()},
		"mirrors that are not taken":                         {anyMachine, withoutCounter("-capacity"), features()},
		"groups that an API server has dropped": {anyMachine,
			withGroups(func([]string) []string { return nil }), groups},
		"one group for all": {anyMachine, withGroups(func([]string) []string { return []string{"all"} }), groups},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				d := dice{rand.New(rand.NewPCG(seed, 2))}
				m := test.machine(d)
				run := run{t: t, features: test.features, machine: m, steps: d.steps(m), spoil: test.spoil}
				if run.err() != nil {
					t.Logf("found by sequence %d:\n%s", seed+1, run.minimised())
					return
				}
			}
			t.Error("2000 sequences did not reveal the mistake")
		})
	}
}

// anyMachine returns a random machine without bridges.
func anyMachine(d dice) machine {
	m := d.machine()
	for _, c := range m.nics {
		for i := range c.vfs {
			c.vfs[i].enslaved = false
		}
	}
	return m
}

// withoutCounter removes all consumption of counters with the given name suffix.
func withoutCounter(suffix string) func(draslices.Result, machine) {
	return func(result draslices.Result, _ machine) {
		eachDevice(result, func(d *resourceapi.Device) {
			for _, c := range d.ConsumesCounters {
				for name := range c.Counters {
					if strings.HasSuffix(name, suffix) {
						delete(c.Counters, name)
					}
				}
			}
		})
	}
}

// withGroups applies change to the compatibility groups of all devices.
func withGroups(change func([]string) []string) func(draslices.Result, machine) {
	return func(result draslices.Result, _ machine) {
		eachDevice(result, func(d *resourceapi.Device) {
			for i := range d.ConsumesCounters {
				if c := &d.ConsumesCounters[i]; c.CompatibilityGroups != nil {
					c.CompatibilityGroups = change(c.CompatibilityGroups)
				}
			}
		})
	}
}

// peersOnly removes the consumption of the mirrors of an entry's own capacities from all shared entries.
func peersOnly(result draslices.Result, _ machine) {
	eachDevice(result, func(d *resourceapi.Device) {
		if !ptr.Deref(d.AllowMultipleAllocations, false) {
			return
		}
		d.ConsumesCounters = stdslices.DeleteFunc(d.ConsumesCounters,
			func(c resourceapi.DeviceCounterConsumption) bool {
				for name := range d.Capacity {
					delete(c.Counters, strings.TrimPrefix(string(name), "dra.networking/")+"-capacity")
				}
				return len(c.Counters) == 0
			})
	})
}

// slotsByFunctions sets the exclusion slots to the number of virtual functions plus one.
func slotsByFunctions(result draslices.Result, m machine) {
	slots := map[string]resourceapi.Counter{}
	for _, c := range m.nics {
		if len(c.vfs) > 0 {
			slots[c.name+"-counters"] = resourceapi.Counter{Value: *resource.NewQuantity(int64(len(c.vfs))+1,
				resource.DecimalSI)}
		}
	}
	for _, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for _, set := range slice.SharedCounters {
				if n, ok := slots[set.Name]; ok {
					set.Counters["exclusion-slots"] = n
				}
			}
		}
	}
	eachDevice(result, func(d *resourceapi.Device) {
		for _, c := range d.ConsumesCounters {
			_, function := d.Attributes["dra.networking/pfName"]
			if n, ok := slots[c.CounterSet]; ok && !function && !ptr.Deref(d.AllowMultipleAllocations, false) {
				c.Counters["exclusion-slots"] = n
			}
		}
	})
}

func eachDevice(result draslices.Result, change func(*resourceapi.Device)) {
	for _, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for i := range slice.Devices {
				change(&slice.Devices[i])
			}
		}
	}
}

// Every published counter can be used up. A counter that cannot would only cost time, since kube-scheduler has to
// process each counter on every node that it tries.
func TestCountersCanRefuse(t *testing.T) {
	for seed := range uint64(rounds(400)) {
		m := anyMachine(dice{rand.New(rand.NewPCG(seed, 7))})
		wanted := map[string]*resource.Quantity{}
		result := publish(t, features(), m)
		eachDevice(result, func(d *resourceapi.Device) {
			for _, c := range d.ConsumesCounters {
				for name, counter := range c.Counters {
					key := c.CounterSet + " " + name
					if wanted[key] == nil {
						wanted[key] = &resource.Quantity{}
					}
					wanted[key].Add(counter.Value)
				}
			}
		})
		for _, pool := range result.Resources.Pools {
			for _, slice := range pool.Slices {
				for _, set := range slice.SharedCounters {
					for name, counter := range set.Counters {
						if all := wanted[set.Name+" "+name]; all == nil || all.Cmp(counter.Value) <= 0 {
							t.Fatalf("all entries together use only %v of %v of counter %s of %s; the machine is\n%s",
								all, &counter.Value, name, set.Name, m)
						}
					}
				}
			}
		}
	}
}
