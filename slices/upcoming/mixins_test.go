package upcoming_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// fixed returns a counter or a consumption with a fixed amount.
func fixed(n int64) upcoming.Counter {
	return upcoming.Counter{Value: resource.NewQuantity(n, resource.DecimalSI)}
}

func number(n int64) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{IntValue: &n}
}

type (
	attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
)

// Mixins that are included later override those included earlier, regardless of their order in the slice, and an
// object's own values override all mixins.
func TestFlattenOrder(t *testing.T) {
	slice := upcoming.Slice{
		Mixins: &upcoming.Mixins{
			Device: []upcoming.DeviceMixin{
				{Name: "b", Attributes: attributes{"x": number(2), "y": number(2)},
					Capacity: capacities{"c": {Value: resource.MustParse("2")}}},
				{Name: "a", Attributes: attributes{"x": number(1), "y": number(1), "z": number(1)},
					Capacity: capacities{"c": {Value: resource.MustParse("1")}}},
			},
			DeviceCounterConsumption: []upcoming.CounterMixin{{Name: "a",
				Counters: map[string]upcoming.Counter{"n": fixed(1), "m": fixed(1)}}},
			CounterSet: []upcoming.CounterMixin{{Name: "a", Counters: map[string]upcoming.Counter{"n": fixed(8)}}},
		},
		SharedCounters: []upcoming.CounterSet{{Name: "set", Includes: []string{"a"},
			Counters: map[string]upcoming.Counter{"m": fixed(9)}}},
		Devices: []upcoming.Device{
			{Name: "d", Includes: []string{"a", "b"}, Attributes: attributes{"y": number(3)},
				AllowMultipleAllocations: ptr.To(true),
				ConsumesCounters: []upcoming.Consumption{{CounterSet: "set", Includes: []string{"a"},
					Counters: map[string]upcoming.Counter{"n": fixed(5)}, CompatibilityGroups: []string{"g"}}}},
			{Name: "e", Includes: []string{"b", "a"}},
		},
	}
	want := upcoming.Slice{
		SharedCounters: []upcoming.CounterSet{{Name: "set",
			Counters: map[string]upcoming.Counter{"n": fixed(8), "m": fixed(9)}}},
		Devices: []upcoming.Device{
			{Name: "d", Attributes: attributes{"x": number(2), "y": number(3), "z": number(1)},
				Capacity: capacities{"c": {Value: resource.MustParse("2")}}, AllowMultipleAllocations: ptr.To(true),
				ConsumesCounters: []upcoming.Consumption{{CounterSet: "set",
					Counters:            map[string]upcoming.Counter{"n": fixed(5), "m": fixed(1)},
					CompatibilityGroups: []string{"g"}}}},
			{Name: "e", Attributes: attributes{"x": number(1), "y": number(1), "z": number(1)},
				Capacity: capacities{"c": {Value: resource.MustParse("1")}}},
		},
	}
	got, err := upcoming.Flatten(slice)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if errs := upcoming.Validate(slice); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestFlattenUnknown(t *testing.T) {
	for want, slice := range map[string]upcoming.Slice{
		`cannot flatten device d: the slice has no mixin "x"`:                       {Mixins: &upcoming.Mixins{}, Devices: []upcoming.Device{{Name: "d", Includes: []string{"x"}}}},
		`cannot flatten counter set s: the slice has no mixin "x"`:                  {Mixins: &upcoming.Mixins{}, SharedCounters: []upcoming.CounterSet{{Name: "s", Includes: []string{"x"}}}},
		`cannot flatten device d: its consumption of s: the slice has no mixin "x"`: {Mixins: &upcoming.Mixins{}, Devices: []upcoming.Device{{Name: "d", ConsumesCounters: []upcoming.Consumption{{CounterSet: "s", Includes: []string{"x"}}}}}},
	} {
		if _, err := upcoming.Flatten(slice); err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

// Fields that virtual functions have in common are only written once.
func TestCompact(t *testing.T) {
	vf := func(index int64) upcoming.Device {
		return upcoming.Device{
			Name: fmt.Sprintf("v%d", index),
			Attributes: attributes{"example.com/type": number(1), "example.com/pf": number(2),
				"example.com/index": number(index)},
			Capacity: capacities{"example.com/bandwidth": {Value: resource.MustParse("100")}},
			ConsumesCounters: []upcoming.Consumption{
				{CounterSet: "counters-of-the-pf", Counters: map[string]upcoming.Counter{"exclusion-slots": fixed(1),
					"bandwidth": fixed(100)}},
				{CounterSet: "locks", Counters: map[string]upcoming.Counter{fmt.Sprintf("v%d-lock", index): fixed(1)}},
			},
		}
	}
	compact := func(index int64) upcoming.Device {
		return upcoming.Device{
			Name: fmt.Sprintf("v%d", index), Includes: []string{"device-0"},
			Attributes: attributes{"example.com/index": number(index)},
			ConsumesCounters: []upcoming.Consumption{
				{CounterSet: "counters-of-the-pf", Includes: []string{"consumption-0"}},
				{CounterSet: "locks", Counters: map[string]upcoming.Counter{fmt.Sprintf("v%d-lock", index): fixed(1)}},
			},
		}
	}
	want := upcoming.Slice{
		Mixins: &upcoming.Mixins{
			Device: []upcoming.DeviceMixin{{Name: "device-0",
				Attributes: attributes{"example.com/type": number(1), "example.com/pf": number(2)},
				Capacity:   capacities{"example.com/bandwidth": {Value: resource.MustParse("100")}}}},
			DeviceCounterConsumption: []upcoming.CounterMixin{{Name: "consumption-0",
				Counters: map[string]upcoming.Counter{"exclusion-slots": fixed(1), "bandwidth": fixed(100)}}},
		},
	}
	var slice upcoming.Slice
	for i := range int64(8) {
		slice.Devices = append(slice.Devices, vf(i))
		want.Devices = append(want.Devices, compact(i))
	}
	if diff := cmp.Diff(want, upcoming.Compact(slice)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	alone := upcoming.Slice{Devices: []upcoming.Device{vf(0)}}
	if diff := cmp.Diff(alone, upcoming.Compact(alone)); diff != "" {
		t.Errorf("the device was not built from mixins (-want +got):\n%s", diff)
	}
}

// An object never includes more mixins than the KEP allows, however many fields it has in common with other objects.
func TestCompactIncludes(t *testing.T) {
	const devices, kinds = 12, 12
	var slice upcoming.Slice
	for i := range devices {
		d := upcoming.Device{Name: fmt.Sprintf("d%d", i), Attributes: attributes{}}
		for kind := range kinds { // each kind is common to a different set of devices
			if i != kind {
				d.Attributes[resourceapi.QualifiedName(fmt.Sprintf("example.com/quite-a-long-name-of-attribute-%02d",
					kind))] = number(7)
			}
		}
		slice.Devices = append(slice.Devices, d)
	}
	compact := upcoming.Compact(slice)
	if errs := upcoming.Validate(compact); len(errs) > 0 {
		t.Error(errs)
	}
	most := 0
	for _, d := range compact.Devices {
		most = max(most, len(d.Includes))
	}
	if most != 8 {
		t.Errorf("a device includes at most %d mixins, want 8", most)
	}
	checkFlat(t, slice)
}

// checkFlat checks that no information is lost in mixins, that they follow the rules, and that the slice does not grow.
func checkFlat(t testing.TB, slice upcoming.Slice) {
	t.Helper()
	compact := upcoming.Compact(slice)
	if errs := upcoming.Validate(compact); len(errs) > 0 {
		t.Fatalf("the compact slice is invalid: %v", errs)
	}
	flat, err := upcoming.Flatten(compact)
	if diff := cmp.Diff(slice, flat); err != nil || diff != "" {
		t.Fatalf("error = %v, flattened (-want +got):\n%s", err, diff)
	}
	if before, after := size(t, slice), size(t, compact); after > before {
		t.Fatalf("the slices need %d bytes with mixins but only %d without", after, before)
	}
	if diff := cmp.Diff(compact, upcoming.Compact(slice)); diff != "" {
		t.Fatalf("the result is not deterministic (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(compact, upcoming.Compact(compact)); diff != "" {
		t.Fatalf("Compact changed a compact slice (-first +second):\n%s", diff)
	}
}

func size(t testing.TB, slice upcoming.Slice) int {
	t.Helper()
	data, err := json.Marshal(slice)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// checkNode checks the slices of a node in all forms.
func checkNode(t testing.TB, decision policy.Decision, groups bool) {
	t.Helper()
	all := features()
	all.CompatibilityGroups = groups
	requestDriven, err := upcoming.RequestDriven("worker-1", decision, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []upcoming.Node{upcoming.FromResult(build(t, decision, all)), requestDriven} {
		for _, slices := range node.Pools {
			for _, slice := range slices {
				if errs := upcoming.Validate(slice); len(errs) > 0 {
					t.Fatal(errs)
				}
				checkFlat(t, slice)
			}
		}
	}
}

func FuzzNodes(f *testing.F) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 40+8*seed+seed%2)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkNode(t, (&choices{data}).decision(), len(data)%2 == 1)
	})
}

// With mixins, the slices for a node with 1024 virtual functions take up at most two fifths of the space.
func TestSizeWithMixins(t *testing.T) {
	var decision policy.Decision
	for nic := range 8 {
		for i, d := range function(fmt.Sprintf("enp%ds0", nic), 100_000, 128) {
			p := policy.Persona{Policy: "p", Exclusive: true, Plugins: []string{"sriov", "host-device"}}
			if i == 0 {
				p.Suffix = "-passthrough"
			}
			decision.Devices = append(decision.Devices, policy.DeviceDecision{Device: d, Personas: []policy.Persona{p}})
		}
	}
	before, after := 0, 0
	for _, slices := range upcoming.FromResult(build(t, decision, features())).Pools {
		for _, slice := range slices {
			before, after = before+size(t, slice), after+size(t, upcoming.Compact(slice))
		}
	}
	t.Logf("%d bytes with mixins, %d without", before, after)
	if after > before*2/5 {
		t.Errorf("the slices need %d bytes with mixins and %d without, want at most two fifths", after, before)
	}
}

func TestMap(t *testing.T) {
	node := upcoming.Node{Pools: map[string][]upcoming.Slice{"a": {{}, {}}}, Problems: []policy.Problem{{Message: "x"}}}
	changed := node.Map(
		func(upcoming.Slice) upcoming.Slice { return upcoming.Slice{Devices: []upcoming.Device{{Name: "x"}}} },
	)
	if len(changed.Pools["a"]) != 2 || changed.Pools["a"][1].Devices[0].Name != "x" ||
		node.Pools["a"][0].Devices != nil || len(changed.Problems) != 1 {
		t.Errorf("Map returned %v for %v", changed, node)
	}
}
