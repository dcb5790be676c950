package publish

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Topologies can use attributes of every type that a policy can assign; the names of attributes in other domains have a
// prefix.
func TestAttributesForTemplates(t *testing.T) {
	got := plainAttributes(map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"dra.networking/plane":    {StringValue: new("a")},
		"dra.networking/rail":     {IntValue: new(int64(7))},
		"dra.networking/spare":    {BoolValue: new(false)},
		"dra.networking/firmware": {VersionValue: new("1.2.3")},
		"example.com/rail":        {IntValue: new(int64(8))},
	})
	want := map[string]any{"plane": "a", "rail": int64(7), "spare": false, "firmware": "1.2.3",
		"example.com/rail": int64(8)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong attributes (-want +got):\n%s", diff)
	}
}

// Steps can enforce the amounts that were allocated to a claim: its share of a device, a whole device, or a virtual
// function's share of the link of its physical function.
func TestAllocatedAmountsForTemplates(t *testing.T) {
	counters := []policy.Capacity{{Name: "bandwidth", Value: resource.MustParse("10k")},
		{Name: "pods", Value: resource.MustParse("9")}}
	consumed := map[resourceapi.QualifiedName]resource.Quantity{
		"dra.networking/bandwidth": resource.MustParse("7300"), "dra.networking/pods": resource.MustParse("1")}
	for name, test := range map[string]struct {
		entry    draslices.Entry
		consumed map[resourceapi.QualifiedName]resource.Quantity
		want     map[string]any
	}{
		"share": {draslices.Entry{Persona: policy.Persona{Capacity: counters}}, consumed, map[string]any{
			"capacity.bandwidth": int64(7300), "capacity.bandwidth.bits": int64(7_300_000_000), "capacity.pods": int64(1)}},
		"whole": {draslices.Entry{Persona: policy.Persona{Capacity: counters, Exclusive: true}}, nil, map[string]any{
			"capacity.bandwidth": int64(10000), "capacity.bandwidth.bits": int64(10_000_000_000),
			"capacity.pods": int64(9)}},
		"function": {draslices.Entry{Persona: policy.Persona{Exclusive: true}, Bandwidth: 3100}, nil, map[string]any{
			"bandwidth": int64(3100), "capacity.bandwidth": int64(3100), "capacity.bandwidth.bits": int64(3_100_000_000)}},
		"nothing": {draslices.Entry{}, nil, map[string]any{}},
	} {
		got := allocated(&test.entry, &resourceapi.DeviceRequestAllocationResult{ConsumedCapacity: test.consumed})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: wrong result (-want +got):\n%s", name, diff)
		}
	}
}
