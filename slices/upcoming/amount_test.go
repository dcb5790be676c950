package upcoming_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

func q(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func TestAmount(t *testing.T) {
	steps := &resourceapi.CapacityRequestPolicy{Default: q(12500),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: q(100), Max: q(99900), Step: q(100)}}
	tiers := &resourceapi.CapacityRequestPolicy{Default: q(10000),
		ValidValues: []resource.Quantity{*q(10000), *q(25000)}}
	open := &resourceapi.CapacityRequestPolicy{Default: q(5000),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: q(1000)}}
	for _, test := range []struct {
		name    string
		policy  *resourceapi.CapacityRequestPolicy
		request *resource.Quantity
		want    int64 // -1: rejected
	}{
		{"steps: no request", steps, nil, 12500},
		{"steps: less than the minimum", steps, q(1), 100},
		{"steps: the minimum", steps, q(100), 100},
		{"steps: rounded up", steps, q(101), 200},
		{"steps: on a step", steps, q(25000), 25000},
		{"steps: the maximum", steps, q(99900), 99900},
		{"steps: rounded up over the maximum", steps, q(99901), -1},
		{"steps: more than there is", steps, q(100001), -1},
		{"steps: more than 63 bits", steps, ptr.To(resource.MustParse("1e30")), -1},
		{"tiers: no request", tiers, nil, 10000},
		{"tiers: rounded up", tiers, q(10001), 25000},
		{"tiers: more than the greatest", tiers, q(25001), -1},
		{"without steps", open, q(1001), 1001},
		{"without a maximum", open, q(100000), 100000},
		{"only a default: no request", &resourceapi.CapacityRequestPolicy{Default: q(7)}, nil, 7},
		{"only a default: any request", &resourceapi.CapacityRequestPolicy{Default: q(7)}, q(9), 9},
		{"no policy and no request: everything", nil, nil, 100000},
		{"no policy", nil, q(9), 9},
	} {
		counter := upcoming.Counter{Value: q(100000), RequestPolicy: test.policy}
		amount, ok := counter.Amount(test.request)
		if ok != (test.want >= 0) || ok && amount.CmpInt64(test.want) != 0 {
			t.Errorf("%s: got %s, %t, want %d", test.name, &amount, ok, test.want)
		}
	}
}

// class is a class that selects all devices.
type class struct{}

func (class) List() ([]*resourceapi.DeviceClass, error) { return nil, errors.New("not needed") }
func (class) Get(string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{}, nil
}

// allocated returns the amount of a shared device that the real allocator assigns to a claim, or nil if it rejects the
// claim.
func allocated(t *testing.T, counter upcoming.Counter, request *resource.Quantity) *resource.Quantity {
	t.Helper()
	const key = "dra.networking/bandwidth"
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "dra.networking", NodeName: ptr.To("worker-1"), Pool: resourceapi.ResourcePool{Name: "p",
			ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: "d", AllowMultipleAllocations: ptr.To(true),
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{key: {Value: *counter.Value,
				RequestPolicy: counter.RequestPolicy}}}},
	}}
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: "all",
		AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	if request != nil {
		exactly.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{key: *request},
		}
	}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: exactly}}}}}
	state := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection()}
	features := structured.Features{PartitionableDevices: true, ConsumableCapacity: true}
	allocator, err := structured.NewAllocator(t.Context(), features, state, class{},
		[]*resourceapi.ResourceSlice{slice}, dracel.NewCache(1, dracel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	results, err := allocator.Allocate(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}},
		[]*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return nil
	}
	return ptr.To(results[0].Devices.Results[0].ConsumedCapacity[key])
}

// Amount follows the same rules as the real allocator, which uses them to divide a device's capacity.
func TestAmountAsTheAllocator(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	given := 0
	for range 3000 {
		counter := upcoming.Counter{Value: q(1 + random.Int64N(100))}
		low := random.Int64N(20)
		policy := &resourceapi.CapacityRequestPolicy{Default: q(low)}
		switch random.IntN(4) {
		case 0:
			policy = nil
		case 1:
			policy.ValidValues = []resource.Quantity{*q(low), *q(low + 7), *q(low + 30)}
		case 2:
			step := 1 + random.Int64N(5)
			policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: q(low), Step: q(step)}
			if random.IntN(2) == 0 {
				policy.ValidRange.Max = q(low + step*random.Int64N(9))
			}
		}
		counter.RequestPolicy = policy
		var request *resource.Quantity
		if random.IntN(4) > 0 {
			request = q(random.Int64N(120))
		}
		want := allocated(t, counter, request)
		got, ok := counter.Amount(request)
		if ok != (want != nil) || ok && got.Cmp(*want) != 0 {
			t.Fatalf("counter %+v, request %v: got %s, %t; allocator returned %v", counter, request, &got, ok, want)
		}
		if ok {
			given++
		}
	}
	if given < 500 || given > 2500 {
		t.Errorf("%d requests were allocated, want 500 to 2500", given)
	}
}
