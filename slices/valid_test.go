package slices_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// checkValid checks the limits of the ResourceSlice API and the references inside each pool.
func checkValid(t testing.TB, result draslices.Result) {
	t.Helper()
	for name, pool := range result.Resources.Pools {
		for part := range strings.SplitSeq(name, "/") {
			if reasons := validation.IsDNS1123Subdomain(part); len(reasons) > 0 {
				t.Errorf("pool %q: %v", name, reasons)
			}
		}
		sets := map[string]resourceapi.CounterSet{}
		names := map[string]bool{}
		for _, slice := range pool.Slices {
			checkSlice(t, slice, sets, names)
		}
	}
	for _, e := range result.Entries {
		if found, ok := result.Find(e.Pool, e.Name); !ok || found.Spec.Name != e.Name {
			t.Errorf("cannot find entry %s of pool %s", e.Name, e.Pool)
		}
	}
}

func checkSlice(t testing.TB, slice resourceslice.Slice, sets map[string]resourceapi.CounterSet, names map[string]bool) {
	t.Helper()
	if len(slice.SharedCounters) > 0 && len(slice.Devices) > 0 {
		t.Error("counters and devices in one slice")
	}
	for _, set := range slice.SharedCounters {
		sets[set.Name] = set
		checkLabel(t, set.Name)
		if len(set.Counters) == 0 || len(set.Counters) > resourceapi.ResourceSliceMaxCountersPerCounterSet {
			t.Errorf("set %s has %d counters", set.Name, len(set.Counters))
		}
		for counter := range set.Counters {
			checkLabel(t, counter)
		}
	}
	limit := resourceapi.ResourceSliceMaxDevices
	for _, d := range slice.Devices {
		if names[d.Name] {
			t.Errorf("two devices are called %s", d.Name)
		}
		names[d.Name] = true
		checkDevice(t, d, sets)
		if len(d.ConsumesCounters) > 0 {
			limit = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	if len(slice.Devices) > limit {
		t.Errorf("%d devices in a slice, the limit is %d", len(slice.Devices), limit)
	}
}

func checkDevice(t testing.TB, d resourceapi.Device, sets map[string]resourceapi.CounterSet) {
	t.Helper()
	checkLabel(t, d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		t.Errorf("device %s has %d attributes and capacities", d.Name, n)
	}
	for name, value := range d.Attributes {
		_, id, qualified := strings.Cut(string(name), "/")
		if !qualified || len(id) > resourceapi.DeviceMaxIDLength || len(validation.IsCIdentifier(id)) > 0 {
			t.Errorf("device %s: bad attribute name %q", d.Name, name)
		}
		if value.StringValue != nil && len(*value.StringValue) > resourceapi.DeviceAttributeMaxValueLength {
			t.Errorf("device %s: attribute %s is too long", d.Name, name)
		}
	}
	for name, c := range d.Capacity {
		if d.AllowMultipleAllocations == nil && c.RequestPolicy != nil {
			t.Errorf("exclusive device %s has a request policy for %s", d.Name, name)
		}
		if d.AllowMultipleAllocations != nil && (c.RequestPolicy == nil || c.RequestPolicy.Default == nil) {
			t.Errorf("shared device %s has no default for %s", d.Name, name)
		}
	}
	if d.AllowMultipleAllocations != nil && len(d.Capacity) == 0 {
		t.Errorf("shared device %s has no capacity", d.Name)
	}
	for _, c := range d.ConsumesCounters {
		for counter := range c.Counters {
			if _, ok := sets[c.CounterSet].Counters[counter]; !ok {
				t.Errorf("device %s: no counter %s in set %s before it", d.Name, counter, c.CounterSet)
			}
		}
		if len(c.Counters) == 0 {
			t.Errorf("device %s consumes nothing of set %s", d.Name, c.CounterSet)
		}
	}
}

func checkLabel(t testing.TB, name string) {
	t.Helper()
	if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
		t.Errorf("%q is no DNS label: %v", name, reasons)
	}
}
