package upcoming_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// fields returns n attributes.
func fields(n int) attributes {
	all := attributes{}
	for i := range n {
		all[resourceapi.QualifiedName(fmt.Sprintf("example.com/a%d", i))] = number(1)
	}
	return all
}

// counters returns n counters.
func counters(n int) map[string]upcoming.Counter {
	all := map[string]upcoming.Counter{}
	for i := range n {
		all[fmt.Sprintf("c%d", i)] = fixed(1)
	}
	return all
}

// devices returns n copies of a device.
func devices(n int, like upcoming.Device) []upcoming.Device {
	var all []upcoming.Device
	for i := range n {
		like.Name = fmt.Sprintf("d%d", i)
		all = append(all, like)
	}
	return all
}

// mixins returns n device mixins, each with some attributes.
func mixins(n, attributes int) *upcoming.Mixins {
	m := &upcoming.Mixins{}
	for i := range n {
		m.Device = append(m.Device, upcoming.DeviceMixin{Name: fmt.Sprintf("m%d", i), Attributes: fields(attributes)})
	}
	return m
}

func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("m%d", i))
	}
	return all
}

func TestValidate(t *testing.T) {
	consuming := func(n int) upcoming.Device {
		return upcoming.Device{ConsumesCounters: []upcoming.Consumption{{CounterSet: "s", Counters: counters(n)}}}
	}
	set := func(c upcoming.Counter) []upcoming.CounterSet {
		return []upcoming.CounterSet{{Name: "s", Counters: map[string]upcoming.Counter{"c": c}}}
	}
	consumption := func(c upcoming.Counter) []upcoming.Device {
		return []upcoming.Device{{Name: "d",
			ConsumesCounters: []upcoming.Consumption{{CounterSet: "s", Counters: map[string]upcoming.Counter{"c": c}}}}}
	}
	consumptionMixin := func(n int) *upcoming.Mixins {
		return &upcoming.Mixins{DeviceCounterConsumption: []upcoming.CounterMixin{{Name: "m0", Counters: counters(n)}}}
	}
	setMixin := func(n int) *upcoming.Mixins {
		return &upcoming.Mixins{CounterSet: []upcoming.CounterMixin{{Name: "m0", Counters: counters(n)}}}
	}
	fromClaim := upcoming.Counter{ValueFrom: &upcoming.ValueFrom{CapacityKey: "x/y"}}
	withPolicy := upcoming.Counter{Value: q(1), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: q(1)}}
	for name, test := range map[string]struct {
		slice upcoming.Slice
		want  []string
	}{
		"128 devices": {upcoming.Slice{Devices: devices(128, upcoming.Device{})}, nil},
		"129 devices": {upcoming.Slice{Devices: devices(129, upcoming.Device{})},
			[]string{"devices: Too many: 129: must have at most 128 items"}},
		"4096 attributes": {upcoming.Slice{Mixins: mixins(64, 32),
			Devices: devices(64, upcoming.Device{Attributes: fields(32)})}, nil},
		"4097 attributes": {upcoming.Slice{Mixins: &upcoming.Mixins{Device: append(mixins(64, 32).Device,
			upcoming.DeviceMixin{Name: "one", Attributes: fields(1)})},
			Devices: devices(64, upcoming.Device{Attributes: fields(32)})},
			[]string{"devices: Too many: 4097: must have at most 4096 items"}},
		"256 counters": {upcoming.Slice{Mixins: setMixin(100),
			SharedCounters: []upcoming.CounterSet{{Name: "s", Counters: counters(156)}}}, nil},
		"257 counters": {upcoming.Slice{Mixins: setMixin(100),
			SharedCounters: []upcoming.CounterSet{{Name: "s", Counters: counters(157)}}},
			[]string{"sharedCounters: Too many: 257: must have at most 256 items"}},
		"2048 consumed counters": {upcoming.Slice{Mixins: consumptionMixin(48), Devices: devices(100, consuming(20))},
			nil},
		"2049 consumed counters": {upcoming.Slice{Mixins: consumptionMixin(49), Devices: devices(100, consuming(20))},
			[]string{"devices: Too many: 2049: must have at most 2048 items"}},
		"8 includes": {upcoming.Slice{Mixins: mixins(8, 1),
			Devices: []upcoming.Device{{Name: "d", Includes: names(8)}}}, nil},
		"9 includes": {upcoming.Slice{Mixins: mixins(9, 1),
			Devices: []upcoming.Device{{Name: "d", Includes: names(9)}}},
			[]string{"devices[0].includes: Too many: 9: must have at most 8 items"}},
		"32 attributes of a device and its mixins": {upcoming.Slice{Mixins: mixins(1, 31),
			Devices: []upcoming.Device{
				{Name: "d", Includes: names(1),
					Attributes: attributes{"example.com/a0": number(2), "example.com/b": number(1)}}}}, nil},
		"33 attributes of a device and its mixins": {upcoming.Slice{Mixins: mixins(1, 31),
			Devices: []upcoming.Device{
				{Name: "d", Includes: names(1), Attributes: attributes{"example.com/b": number(2)},
					Capacity: capacities{"example.com/c": {}}}}},
			[]string{"devices[0]: Too many: 33: must have at most 32 items"}},
		"mixins of another kind": {upcoming.Slice{Mixins: mixins(1, 1),
			SharedCounters: []upcoming.CounterSet{{Name: "s", Includes: names(1)}},
			Devices: []upcoming.Device{{Name: "d",
				ConsumesCounters: []upcoming.Consumption{{CounterSet: "s", Includes: names(1)}}}}},
			[]string{`sharedCounters[0].includes[0]: Not found: "m0"`,
				`devices[0].consumesCounters[0].includes[0]: Not found: "m0"`}},
		"no mixins at all": {upcoming.Slice{Devices: []upcoming.Device{{Name: "d",
			Includes: names(1)}}}, []string{`devices[0].includes[0]: Not found: "m0"`}},
		"the same name for mixins of two kinds": {upcoming.Slice{Mixins: &upcoming.Mixins{Device: mixins(1, 1).Device,
			CounterSet: setMixin(1).CounterSet}}, nil},
		"two mixins of one name": {upcoming.Slice{Mixins: &upcoming.Mixins{Device: append(mixins(1, 1).Device,
			mixins(1, 1).Device...)}},
			[]string{`mixins.device[1].name: Duplicate value: "m0"`}},
		"a name that is not a label": {upcoming.Slice{
			Mixins: &upcoming.Mixins{Device: []upcoming.DeviceMixin{{Name: "a.b"}}},
		},
			[]string{`mixins.device[0].name: Invalid value: "a.b": must not contain dots`}},
		"a total with a request policy": {upcoming.Slice{SharedCounters: set(withPolicy)}, nil},
		"a total from a claim": {upcoming.Slice{SharedCounters: set(fromClaim)},
			[]string{"sharedCounters[0].counters[c].value: Required value: a counter of a set has a total",
				"sharedCounters[0].counters[c].valueFrom: Forbidden: only what a device consumes can come from a " +
					"claim"}},
		"a consumption from a claim": {upcoming.Slice{Devices: consumption(fromClaim)}, nil},
		"a consumption with a policy": {upcoming.Slice{Devices: consumption(withPolicy)},
			[]string{"devices[0].consumesCounters[0].counters[c].requestPolicy: Forbidden: the counter of the set " +
				"has the request policy"}},
		"a consumption of nothing": {upcoming.Slice{Devices: consumption(upcoming.Counter{})},
			[]string{
				`devices[0].consumesCounters[0].counters[c]: Invalid value: "c": the consumption of a device is either ` +
					`a value or from a claim`,
			}},
		"a consumption from a claim and not": {upcoming.Slice{Devices: consumption(upcoming.Counter{Value: q(1),
			ValueFrom: fromClaim.ValueFrom})},
			[]string{
				`devices[0].consumesCounters[0].counters[c]: Invalid value: "c": the consumption of a device is either ` +
					`a value or from a claim`,
			}},
		"a consumption from nowhere": {upcoming.Slice{Devices: consumption(
			upcoming.Counter{ValueFrom: &upcoming.ValueFrom{}},
		)},
			[]string{"devices[0].consumesCounters[0].counters[c].valueFrom.capacityKey: Required value: the name of " +
				"a capacity that claims request"}},
	} {
		var got []string
		for _, err := range upcoming.Validate(test.slice) {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
