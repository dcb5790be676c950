package blocks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// The cache stores only a small part of each claim, but this part includes everything that matters: the claim's demand
// does not change.
func TestTransformKeepsWhatAClaimTakes(t *testing.T) {
	valid := 0
	for _, c := range claimspectest.Cases(t) {
		claims, _ := c.Allocated(t)
		for _, claim := range claims {
			claim.UID, claim.CreationTimestamp.Time = "uid", time.Unix(1000, 0)
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "a"},
				{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g"}}
			claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName,
				NetworkData: &resourceapi.NetworkDeviceData{IPs: []string{"10.0.0.1/24"}}}}
			want := useOf(claim)
			if len(want.instances) == 0 {
				continue // without devices from the driver, or rejected by it
			}
			valid++
			kept, err := Transform(claim.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, useOf(kept.(*resourceapi.ResourceClaim)),
				cmp.AllowUnexported(use{}, place{})); diff != "" {
				t.Errorf("case %s: Transform changed what the claim uses (-want +got):\n%s", c.Name, diff)
			}
		}
	}
	if valid < 5 {
		t.Errorf("only %d claims in the corpus are valid, want at least 5", valid)
	}
}

func TestHostileClaimsStaySmall(t *testing.T) {
	const limit = 4 << 10 // bytes per object, as protobuf
	opaque := func(driver string) resourceapi.DeviceConfiguration {
		return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver,
			Parameters: runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", 9900) + `"}`)}}}
	}
	for _, driver := range []string{"example.com", v1alpha1.DriverName} {
		for _, allocated := range []bool{false, true} {
			claim := &resourceapi.ResourceClaim{}
			claim.Name, claim.Annotations = "c", map[string]string{"example.com/large": strings.Repeat("x", 250<<10)}
			for i := range 32 {
				claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests,
					resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i)})
				claim.Spec.Devices.Config = append(claim.Spec.Devices.Config,
					resourceapi.DeviceClaimConfiguration{DeviceConfiguration: opaque(driver)})
			}
			if allocated {
				claim.Status.Allocation = &resourceapi.AllocationResult{}
				devices := &claim.Status.Allocation.Devices
				for i := range 32 {
					devices.Results = append(devices.Results, resourceapi.DeviceRequestAllocationResult{
						Request: fmt.Sprintf("r%d", i), Driver: driver, Pool: "n/p", Device: fmt.Sprintf("d%d", i)})
					devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
						Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: opaque(driver)})
				}
			}
			kept, err := Transform(claim)
			if err != nil || kept.(*resourceapi.ResourceClaim).Size() > limit {
				t.Errorf("driver %s, allocated %t: %d bytes stored, error = %v", driver, allocated,
					kept.(*resourceapi.ResourceClaim).Size(), err)
			}
		}
	}
}
