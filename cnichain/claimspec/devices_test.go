package claimspec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// allocatedClaim returns a claim with one device from a class for the step link in topology t.
func allocatedClaim() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "r", Driver: v1alpha1.DriverName, Pool: "n/up0", Device: "up0",
			}},
			Config: []resourceapi.DeviceAllocationConfiguration{{
				Source: resourceapi.AllocationConfigSourceClass, Requests: []string{"r"},
				DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver:     v1alpha1.DriverName,
					Parameters: runtime.RawExtension{Raw: []byte(`{"networkTopologyRef":{"name":"t"},"step":"link"}`)},
				}},
			}},
		}},
	}}
}

func TestParametersComeOnlyFromTheClass(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		want   string
	}{
		"as it should be": {func(*resourceapi.ResourceClaim) {}, ""},
		"in the claim": {func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Config[0].Source = resourceapi.AllocationConfigSourceClaim
		}, `unknown parameter "networkTopologyRef": use one of step, interfaceName, mac, ips`},
		"two in the claim that cannot be read": {func(c *resourceapi.ResourceClaim) {
			for _, parameters := range []string{`{"vlan":7}`, `{"macs":"a"}`} {
				config := c.Status.Allocation.Devices.Config[0]
				config.Source = resourceapi.AllocationConfigSourceClaim
				config.Opaque = config.Opaque.DeepCopy()
				config.Opaque.Parameters.Raw = []byte(parameters)
				c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, config)
			}
		}, `unknown parameter "vlan": use one of step, interfaceName, mac, ips; unknown parameter "macs"`},
		"none": {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Config = nil },
			"use a class that the controller created"},
		"twice": {func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config,
				c.Status.Allocation.Devices.Config[0])
		}, "several configurations"},
		"all devices": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r",
				Exactly: &resourceapi.ExactDeviceRequest{AllocationMode: resourceapi.DeviceAllocationModeAll}}}
		}, "set allocationMode to ExactCount"},
		"all devices as an alternative": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r",
				FirstAvailable: []resourceapi.DeviceSubRequest{
					{Name: "one"}, {Name: "all", AllocationMode: resourceapi.DeviceAllocationModeAll},
				}}}
			c.Status.Allocation.Devices.Results[0].Request = "r/all"
		}, "set allocationMode to ExactCount"},
		"unknown field": {func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(
				`{"networkTopologyRef":{"name":"t"},"step":"link","vlan":7}`,
			)
		}, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := allocatedClaim()
			test.change(claim)
			attached, err := Devices(claim)
			if test.want == "" {
				if err != nil || len(attached) != 1 || attached[0].Class.Step != "link" {
					t.Errorf("devices = %v, error = %v, want one device of step link", attached, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}

// A request is treated as bandwidth-only if its class specifies this in a form that the driver fully understands. The
// claim itself cannot specify it, because its author could then bypass the topology.
func TestBandwidthsComeOnlyFromTheClass(t *testing.T) {
	for parameters, want := range map[string]bool{
		`{"kind":"BandwidthParameters"}`:                                          true,
		`{"kind":"BandwidthParameters","apiVersion":"networking.dra.io/v1beta1"}`: true,
		`{"kind":"BandwidthParameters","apiVersion":"networking.dra.io/v9"}`:      false,
		`{"kind":"BandwidthParameters","step":"link"}`:                            false,
		`{"kind":"StepParameters"}`:                                               false,
		`{}`:                                                                      false, `[]`: false,
	} {
		for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass,
			resourceapi.AllocationConfigSourceClaim} {
			claim := allocatedClaim()
			config := &claim.Status.Allocation.Devices.Config[0]
			config.Opaque.Parameters.Raw, config.Source = []byte(parameters), source
			only := want && source == resourceapi.AllocationConfigSourceClass
			devices, err := Devices(claim)
			if len(devices) > 0 || (err == nil) != only || (len(Bandwidths(claim)) == 1) != only {
				t.Errorf("%s from %s: devices = %v, bandwidths = %v, error = %v", parameters, source, devices,
					Bandwidths(claim), err)
			}
		}
	}
	if got := Bandwidths(&resourceapi.ResourceClaim{}); len(got) > 0 {
		t.Errorf("a claim without an allocation has bandwidths %v", got)
	}
}

// A claim's parameters apply to the device allocated for their request, and cannot apply to two devices.
func TestClaimsMayWantSomething(t *testing.T) {
	claim := allocatedClaim()
	devices := &claim.Status.Allocation.Devices
	devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
		Source: resourceapi.AllocationConfigSourceClaim,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver:     "dra.networking",
			Parameters: runtime.RawExtension{Raw: []byte(`{"mac":"02-00-00-00-00-0A","ips":["10.1.0.5/24"]}`)},
		}},
	})
	attached, err := Devices(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.ClaimParameters{{MAC: "02:00:00:00:00:0a", IPs: []string{"10.1.0.5/24"}}}
	if diff := cmp.Diff(want, attached[0].Parameters); diff != "" || attached[0].Class.Step != "link" {
		t.Errorf("step %s, parameters (-want +got):\n%s", attached[0].Class.Step, diff)
	}
	devices.Results = append(devices.Results, devices.Results[0])
	if _, err := Devices(claim); err == nil ||
		!strings.Contains(err.Error(), "use a separate request for each device") {
		t.Errorf("error for two devices with one MAC address = %v, want one about separate requests", err)
	}
}

// CheckClasses detects that the scheduler has swapped the devices of two claims. It does not check handwritten classes,
// since these may have any name.
func TestDevicesAreOfTheClassThatIsAskedFor(t *testing.T) {
	topologies := []*v1alpha1.NetworkTopology{
		{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Status: v1alpha1.NetworkTopologyStatus{
			DeviceClasses: []string{"t-link"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Status: v1alpha1.NetworkTopologyStatus{
			DeviceClasses: []string{"other-link"}}},
	}
	for class, want := range map[string]string{
		"t-link": "", "somebodys": "",
		"other-link": "request r is for DeviceClass other-link of NetworkTopology other, but the scheduler has " +
			"allocated a device for step link of NetworkTopology t",
	} {
		for _, alternative := range []bool{false, true} {
			claim := allocatedClaim()
			request := resourceapi.DeviceRequest{Name: "r",
				Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}
			if alternative {
				request = resourceapi.DeviceRequest{Name: "r",
					FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "x", DeviceClassName: class}}}
				claim.Status.Allocation.Devices.Results[0].Request = "r/x"
			}
			claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{request}
			devices, err := Devices(claim)
			if err != nil {
				t.Fatal(err)
			}
			err = CheckClasses(claim, devices, topologies)
			wanted := strings.Replace(want, "request r is", "request "+devices[0].Request+" is", 1)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), wanted)) {
				t.Errorf("class %s, alternative %v: error = %v, want %q", class, alternative, err, want)
			}
		}
	}
}

func TestAdminAccessIsNeverAttached(t *testing.T) {
	claim := allocatedClaim()
	claim.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	if attached, err := Devices(claim); err != nil || len(attached) != 0 {
		t.Errorf("devices = %v, error = %v, want none because of admin access", attached, err)
	}
}

func TestSubrequestsHaveTheParametersOfTheirRequest(t *testing.T) {
	for request, want := range map[string]bool{"r": true, "r/first": true, "s": false, "rr/first": false} {
		if got := appliesTo([]string{"r"}, request); got != want {
			t.Errorf("a configuration for request r applies to %s: %v", request, got)
		}
	}
	if !appliesTo(nil, "anything") {
		t.Error("a configuration without requests must apply to all requests")
	}
}
