package upcoming_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

const pool = "worker-1/enp3s0f0"

// node returns the decision for a physical function with virtual functions, with the bandwidth settings from policies.
func node(speed, functions int, ofPF, ofVFs *resourceapi.CapacityRequestPolicy) policy.Decision {
	var decision policy.Decision
	for i, d := range function("enp3s0f0", speed, functions) {
		p := policy.Persona{Policy: "vfs", Exclusive: true, Plugins: []string{"sriov"}}
		requests := ofVFs
		if i == 0 {
			p.Policy, p.Suffix, requests = "pf", "-passthrough", ofPF
		}
		if requests != nil {
			p.Capacity = []policy.Capacity{bandwidth("100k", requests)}
		}
		decision.Devices = append(decision.Devices, policy.DeviceDecision{Device: d, Personas: []policy.Persona{p}})
	}
	return decision
}

// requestDriven returns the slices in the only pool, and the problems.
func requestDriven(t testing.TB, decision policy.Decision) ([]upcoming.Slice, string) {
	t.Helper()
	node, err := upcoming.RequestDriven("worker-1", decision, features())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range node.Problems {
		lines = append(lines, p.String())
	}
	for _, slice := range node.Pools[pool] {
		if errs := upcoming.Validate(slice); len(errs) > 0 {
			t.Error(errs)
		}
	}
	return node.Pools[pool], strings.Join(lines, "\n")
}

// Each virtual function is published once and consumes the requested amount from the bandwidth counter; an exclusive
// entry of the physical function consumes all of it.
func TestRequestDriven(t *testing.T) {
	slices, problems := requestDriven(t, node(100_000, 2, nil, nil))
	steps := &resourceapi.CapacityRequestPolicy{Default: q(50_000),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: q(100), Max: q(100_000), Step: q(100)}}
	want := []upcoming.CounterSet{{Name: "enp3s0f0-counters", Counters: map[string]upcoming.Counter{
		"exclusion-slots": fixed(3), "bandwidth": {Value: q(100_000), RequestPolicy: steps}}}}
	if diff := cmp.Diff(want, slices[0].SharedCounters); diff != "" || problems != "" {
		t.Errorf("problems: %s, counters (-want +got):\n%s", problems, diff)
	}
	fromClaim := upcoming.Counter{ValueFrom: &upcoming.ValueFrom{CapacityKey: "dra.networking/bandwidth"}}
	consumptions := map[string]map[string]upcoming.Counter{
		"enp3s0f0-passthrough": {"exclusion-slots": fixed(3), "bandwidth": fixed(100_000)},
		"enp3s0f0v0":           {"exclusion-slots": fixed(1), "bandwidth": fromClaim},
		"enp3s0f0v1":           {"exclusion-slots": fixed(1), "bandwidth": fromClaim},
	}
	got := map[string]map[string]upcoming.Counter{}
	for _, d := range slices[1].Devices {
		got[d.Name] = d.ConsumesCounters[0].Counters
		if d.Capacity != nil {
			t.Errorf("%s has its own capacity, so claims that exceed it would be rejected: %v", d.Name, d.Capacity)
		}
	}
	if diff := cmp.Diff(consumptions, got); diff != "" {
		t.Errorf("consumption (-want +got):\n%s", diff)
	}
}

func TestRequestPolicyOfTheCounter(t *testing.T) {
	tiers := func(values ...int64) *resourceapi.CapacityRequestPolicy {
		p := &resourceapi.CapacityRequestPolicy{Default: q(values[0])}
		for _, v := range values {
			p.ValidValues = append(p.ValidValues, *q(v))
		}
		return p
	}
	steps := func(usual, low, high, step int64) *resourceapi.CapacityRequestPolicy {
		return &resourceapi.CapacityRequestPolicy{Default: q(usual),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: q(low), Max: q(high), Step: q(step)}}
	}
	mixed := node(100_000, 2, nil, tiers(10_000, 25_000))
	mixed.Devices[2].Personas = []policy.Persona{{Policy: "other", Exclusive: true, Plugins: []string{"sriov"},
		Capacity: []policy.Capacity{bandwidth("100k", tiers(5000))}}}
	for name, test := range map[string]struct {
		decision policy.Decision
		want     *resourceapi.CapacityRequestPolicy
		problem  string
	}{
		"by default a share": {node(25_000, 8, nil, nil), steps(3100, 100, 25_000, 100), ""},
		"a step at least":    {node(1000, 20, nil, nil), steps(100, 100, 1000, 100), ""},
		"whole steps":        {node(2550, 2, nil, nil), steps(1200, 100, 2500, 100), ""},
		"a slow link": {node(90, 2, nil, nil), &resourceapi.CapacityRequestPolicy{Default: q(45)},
			""},
		"the virtual functions' setting": {node(100_000, 2, steps(100, 100, 500, 100), tiers(10_000, 25_000)),
			tiers(10_000, 25_000), ""},
		"the physical function's setting": {node(100_000, 2, steps(100, 100, 500, 100), nil),
			steps(100, 100, 500, 100), ""},
		"tiers that the link has": {node(20_000, 2, nil, tiers(10_000, 25_000)), tiers(10_000), ""},
		"steps that the link has": {node(20_000, 2, nil, steps(1000, 1000, 100_000, 700)),
			steps(1000, 1000, 19_900, 700), ""},
		"nothing that the link has": {node(5000, 2, nil, tiers(10_000, 25_000)), steps(2500, 100, 5000, 100),
			"policy vfs: device enp3s0f0: its request policy for bandwidth is not used: the link has only 5000 Mbit/s"},
		"two policies": {mixed, tiers(10_000, 25_000),
			"policy other: device enp3s0f0: its request policy for bandwidth is not used: the counter of the " +
				"physical function has the request policy of policy vfs"},
	} {
		slices, problems := requestDriven(t, test.decision)
		if diff := cmp.Diff(test.want, slices[0].SharedCounters[0].Counters["bandwidth"].RequestPolicy); diff != "" ||
			problems != test.problem {
			t.Errorf("%s: problems: %q, request policy (-want +got):\n%s", name, problems, diff)
		}
	}
}

// If the speed is unknown, bandwidth is not counted, whether a claim or a policy defines the amount.
func TestRequestDrivenWithoutSpeed(t *testing.T) {
	slices, problems := requestDriven(t, node(0, 2, nil, nil))
	if _, counted := slices[0].SharedCounters[0].Counters["bandwidth"]; counted || problems != "" {
		t.Errorf("counters = %v, problems = %s, want none", slices[0].SharedCounters, problems)
	}
}

func TestRequestDrivenBadNode(t *testing.T) {
	if _, err := upcoming.RequestDriven("Worker_1", policy.Decision{}, features()); err == nil {
		t.Error("RequestDriven accepted an invalid node name")
	}
}

// ledger is a scheduler as specified in KEP-5941, for a single pool with only exclusive devices.
type ledger struct {
	left    map[string]upcoming.Counter // remaining amounts in the only counter set
	devices []upcoming.Device
	taken   map[string]map[string]resource.Quantity // the consumption of devices, by name
}

func newLedger(slices []upcoming.Slice) *ledger {
	l := &ledger{taken: map[string]map[string]resource.Quantity{}}
	for _, slice := range slices {
		for _, set := range slice.SharedCounters {
			l.left = set.Counters
		}
		l.devices = append(l.devices, slice.Devices...)
	}
	return l
}

// allocate allocates the first device that fits and has part in its name.
func (l *ledger) allocate(part string, request *resource.Quantity) string {
	for _, d := range l.devices {
		if _, taken := l.taken[d.Name]; taken || !strings.Contains(d.Name, part) {
			continue
		}
		if amounts := l.amounts(d, request); amounts != nil {
			l.taken[d.Name] = amounts
			return d.Name
		}
	}
	return ""
}

// amounts returns the amounts that a device would consume, or nil if they exceed the remaining amounts.
func (l *ledger) amounts(d upcoming.Device, request *resource.Quantity) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	for name, c := range d.ConsumesCounters[0].Counters {
		total, amount, ok := l.left[name], resource.Quantity{}, true
		if c.ValueFrom != nil {
			amount, ok = total.Amount(request)
		} else {
			amount = *c.Value
		}
		used := amount.DeepCopy()
		for _, consumed := range l.taken {
			used.Add(consumed[name])
		}
		if !ok || used.Cmp(*total.Value) > 0 {
			return nil
		}
		amounts[name] = amount
	}
	return amounts
}

// Claims for arbitrary amounts, in any order, never take more bandwidth than the link has. They are only rejected if
// there is not enough bandwidth left or no function is free.
func TestRequestsShareTheLink(t *testing.T) {
	const speed, functions = 100_000, 8
	slices, _ := requestDriven(t, node(speed, functions, nil, nil))
	random := rand.New(rand.NewPCG(5, 6))
	refused := 0
	for range 300 {
		l := newLedger(slices)
		used, given := int64(0), 0
		for range 12 {
			request := q(1 + random.Int64N(40_000))
			rounded := (request.Value() + 99) / 100 * 100
			device := l.allocate("enp3s0f0v", request)
			if fits := used+rounded <= speed && given < functions; fits != (device != "") {
				t.Fatalf("a claim for %s, with %d of %d used, got device %q", request, used, speed, device)
			}
			if device == "" {
				refused++
				continue
			}
			used, given = used+rounded, given+1
		}
		if got := l.allocate("passthrough", nil); got != "" {
			t.Fatalf("%s was allocated while virtual functions were in use", got)
		}
	}
	if refused == 0 {
		t.Error("no claim was rejected, so the limit was not tested")
	}
	if l := newLedger(slices); l.allocate("passthrough", nil) == "" || l.allocate("enp3s0f0v", q(1)) != "" {
		t.Error("a virtual and the physical function were allocated together, or neither was")
	}
}
