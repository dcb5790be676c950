package simulate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A refusal reports how much of a shared device is left and requested, and lists all claims that hold the rest,
// including pods that could stay.
func TestShortOfASharedDevice(t *testing.T) {
	const counter = resourceapi.QualifiedName("dra.networking/macvlans")
	allocation := func(amount string) *resourceapi.AllocationResult {
		return &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "dra.networking", Pool: "n/eth1",
				Device: "eth1",
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
					counter: resource.MustParse(amount),
				}}}}}
	}
	holder := func(name string) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Status: resourceapi.ResourceClaimStatus{Allocation: allocation("1")}}
	}
	s := New(Cluster{
		Slices: []*resourceapi.ResourceSlice{{Spec: resourceapi.ResourceSliceSpec{Driver: "dra.networking",
			Pool: resourceapi.ResourcePool{Name: "n/eth1"},
			Devices: []resourceapi.Device{{Name: "eth1",
				Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
					counter: {Value: resource.MustParse("3")}}}}}}},
		Claims: []*resourceapi.ResourceClaim{holder("c"), holder("a"), holder("b")},
	})
	for amount, want := range map[string][]string{
		"1": {"device eth1 of pool n/eth1 has 0 of 3 macvlans left, and 1 is requested; held by ns/a, ns/b, ns/c"},
		"0": nil,
	} {
		if diff := cmp.Diff(want, s.capacities([]resourceapi.AllocationResult{*allocation(amount)})); diff != "" {
			t.Errorf("%s is asked for (-want +got):\n%s", amount, diff)
		}
	}
}

func TestSimilarClasses(t *testing.T) {
	known := []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "storage-link"}}}
	const gpu = "DeviceClass gpu does not exist; "
	for _, test := range []struct {
		class string
		live  bool
		want  string
	}{
		{"storage-link", false, ""},
		{"storage-lnk", false, "DeviceClass storage-lnk does not exist; did you mean storage-link?"},
		{"storage-lnk", true, "DeviceClass storage-lnk does not exist; did you mean storage-link?"},
		{"gpu", false, gpu + "give the NetworkTopology that it is made for, or the class itself, with -f"},
		{"gpu", true, gpu + "create the NetworkTopology that it is made for, or the class itself"},
	} {
		request := resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: test.class}}
		claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request, request}}}}
		got := New(Cluster{Classes: known, Live: test.live}).missing([]*resourceapi.ResourceClaim{claim})
		if len(got) > 1 || strings.Join(got, "") != test.want {
			t.Errorf("%s, live %t: %q, want %q", test.class, test.live, got, test.want)
		}
	}
}
