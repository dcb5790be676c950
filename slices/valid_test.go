package slices_test

import (
	"encoding/json"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// checkValid checks that the result follows the rules of the ResourceSlice API and that references within each pool are
// valid. It runs the generated part of the API server's validation unchanged. The handwritten part is not available as
// a library, so its rules are implemented here according to the API documentation. Tests with a real Kubernetes cluster
// check that the API server agrees.
func checkValid(t testing.TB, result draslices.Result) {
	t.Helper()
	create := operation.Operation{Type: operation.Create,
		Options: map[string]bool{"DRAPartitionableDevicesType": false}}
	published := map[draslices.EntryID]resourceapi.Device{}
	for name, pool := range result.Resources.Pools {
		if len(name) > resourceapi.PoolNameMaxLength || len(pool.Slices) == 0 {
			t.Errorf("pool %q has too long a name, or no slices: %d", name, len(pool.Slices))
		}
		for part := range strings.SplitSeq(name, "/") {
			if reasons := validation.IsDNS1123Subdomain(part); len(reasons) > 0 {
				t.Errorf("pool %q: %v", name, reasons)
			}
		}
		sets := map[string]resourceapi.CounterSet{}
		groups := map[string]bool{}
		for _, slice := range pool.Slices {
			spec := sliceSpec(name, len(pool.Slices), slice)
			for _, err := range resourceapi.Validate_ResourceSliceSpec(t.Context(), create, nil, &spec, nil) {
				t.Errorf("pool %s: %v", name, err)
			}
			checkSlice(t, slice, sets)
			for _, d := range slice.Devices {
				id := draslices.EntryID{Pool: name, Name: d.Name}
				if _, duplicate := published[id]; duplicate {
					t.Errorf("two devices in pool %s are named %s", name, d.Name)
				}
				published[id] = d
				checkGroups(t, d, groups)
			}
		}
	}
	if len(published) != len(result.Entries) {
		t.Errorf("published %d devices for %d entries", len(published), len(result.Entries))
	}
	for _, e := range result.Entries {
		found, ok := result.Find(e.Pool, e.Name)
		if !ok || !equality.Semantic.DeepEqual(published[draslices.EntryID{Pool: e.Pool, Name: e.Name}], found.Spec) {
			t.Errorf("entry %s of pool %s differs from the published device", e.Name, e.Pool)
		}
	}
}

func checkSlice(t testing.TB, slice resourceslice.Slice, sets map[string]resourceapi.CounterSet) {
	t.Helper()
	if (len(slice.SharedCounters) > 0) == (len(slice.Devices) > 0) {
		t.Error("want a slice with either counters or devices, but not both")
	}
	for _, set := range slice.SharedCounters {
		if _, duplicate := sets[set.Name]; duplicate {
			t.Errorf("two counter sets are named %s", set.Name)
		}
		sets[set.Name] = set
		checkLabel(t, set.Name)
		checkCounters(t, set.Name, set.Counters)
	}
	if len(slice.SharedCounters) > resourceapi.ResourceSliceMaxCounterSets {
		t.Errorf("a slice has too many counter sets: %d", len(slice.SharedCounters))
	}
	limit := resourceapi.ResourceSliceMaxDevices
	for _, d := range slice.Devices {
		checkDevice(t, d, sets)
		if len(d.ConsumesCounters) > 0 || d.Attributes[policy.SupportedCNIs].StringValues != nil {
			limit = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	if len(slice.Devices) > limit {
		t.Errorf("a slice has %d devices, but the limit is %d", len(slice.Devices), limit)
	}
}

// checkCounters checks the counters in a set or a consumption.
func checkCounters(t testing.TB, where string, counters map[string]resourceapi.Counter) {
	t.Helper()
	if len(counters) == 0 || len(counters) > resourceapi.ResourceSliceMaxCountersPerCounterSet {
		t.Errorf("%s has an invalid number of counters: %d", where, len(counters))
	}
	for name, c := range counters {
		checkLabel(t, name)
		if c.Value.Sign() < 0 {
			t.Errorf("counter %s of %s is negative: %s", name, where, &c.Value)
		}
	}
}

// checkCapacity checks a capacity of an exclusive or a shared device.
func checkCapacity(t testing.TB, where string, c resourceapi.DeviceCapacity, shared bool) {
	t.Helper()
	p := c.RequestPolicy
	if !shared {
		if p != nil {
			t.Errorf("%s: an exclusive device has a request policy", where)
		}
		return
	}
	if p == nil || p.Default == nil {
		t.Errorf("%s: a shared device has no default request", where)
		return
	}
	var capacity v1alpha1.Capacity
	if data, err := json.Marshal(c); err != nil || yaml.UnmarshalStrict(data, &capacity) != nil {
		t.Errorf("%s: policies cannot express the capacity %v: %v", where, c, err)
	}
	// In this respect, the API has the same rules as the driver's own policies.
	custom := &v1alpha1.DeviceExposurePolicy{Spec: v1alpha1.DeviceExposurePolicySpec{Selector: v1alpha1.DeviceSelector{CEL: "true"}, Exposure: &v1alpha1.Exposure{
		AllowMultipleAllocations: true, Capacity: map[string]v1alpha1.Capacity{"x": capacity},
		SupportedCNIPlugins: []v1alpha1.CNIPlugin{{Name: "x"}}}}}
	for _, err := range v1alpha1.Validate(custom) {
		t.Errorf("%s: %v", where, err)
	}
}

func checkDevice(t testing.TB, d resourceapi.Device, sets map[string]resourceapi.CounterSet) {
	t.Helper()
	checkLabel(t, d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		t.Errorf("device %s has too many attributes and capacities: %d", d.Name, n)
	}
	values := 0
	for _, value := range d.Attributes {
		if values += max(1, len(value.StringValues)); value.StringValues != nil && len(value.StringValues) == 0 {
			t.Errorf("device %s has an empty list attribute", d.Name)
		}
		for _, item := range value.StringValues {
			if len(item) > resourceapi.DeviceAttributeMaxValueLength {
				t.Errorf("device %s: %q is too long", d.Name, item)
			}
		}
	}
	if values > resourceapi.ResourceSliceMaxAttributeValuesPerDevice {
		t.Errorf("device %s has too many attribute values: %d", d.Name, values)
	}
	for name, value := range d.Attributes {
		domain, id, qualified := strings.Cut(string(name), "/")
		if !qualified || len(domain) > resourceapi.DeviceMaxDomainLength || len(id) > resourceapi.DeviceMaxIDLength ||
			len(validation.IsCIdentifier(id)) > 0 {
			t.Errorf("device %s: invalid attribute name %q", d.Name, name)
		}
		if value.StringValue != nil && len(*value.StringValue) > resourceapi.DeviceAttributeMaxValueLength {
			t.Errorf("device %s: the value of attribute %s is too long", d.Name, name)
		}
	}
	for name, c := range d.Capacity {
		domain, id, _ := strings.Cut(string(name), "/")
		if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(id) > resourceapi.DeviceMaxIDLength ||
			len(validation.IsCIdentifier(id)) > 0 {
			t.Errorf("device %s: invalid capacity name %q", d.Name, name)
		}
		checkCapacity(t, "device "+d.Name, c, d.AllowMultipleAllocations != nil)
	}
	if d.AllowMultipleAllocations != nil && len(d.Capacity) == 0 {
		t.Errorf("shared device %s has no capacity", d.Name)
	}
	if len(d.ConsumesCounters) > resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice {
		t.Errorf("device %s consumes from too many counter sets: %d", d.Name, len(d.ConsumesCounters))
	}
	for _, c := range d.ConsumesCounters {
		checkCounters(t, "what device "+d.Name+" consumes of "+c.CounterSet, c.Counters)
		for counter := range c.Counters {
			if _, ok := sets[c.CounterSet].Counters[counter]; !ok {
				t.Errorf("device %s: no preceding set contains counter %s of set %s", d.Name, counter, c.CounterSet)
			}
		}
	}
}

// checkGroups checks that, among the devices that consume from the same counter set, either all or none have
// compatibility groups. Otherwise, the scheduler would treat them as incompatible.
func checkGroups(t testing.TB, d resourceapi.Device, groups map[string]bool) {
	t.Helper()
	for _, c := range d.ConsumesCounters {
		has := len(c.CompatibilityGroups) > 0
		if before, known := groups[c.CounterSet]; known && before != has {
			t.Errorf("some devices have compatibility groups in counter set %s, and others, such as %s, have none",
				c.CounterSet, d.Name)
		}
		groups[c.CounterSet] = has
	}
}

func checkLabel(t testing.TB, name string) {
	t.Helper()
	if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
		t.Errorf("%q is not a DNS label: %v", name, reasons)
	}
}
