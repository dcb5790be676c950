package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// TestRemarks covers the remarks in this package. The corpus is covered by tests in package policy.
func TestRemarks(t *testing.T) {
	for exposure, want := range map[string]string{
		`{capacity: {bandwidth: {value: "100", requestPolicy: {default: "10"}}}, supportedCNIPlugins: [{name: ` +
			`sriov, exclusive: true}]}`: "",
		`{capacity: {bandwidth: {value: "100", requestPolicy: {default: "10", validValues: ["10", "20"]}}}, ` +
			`supportedCNIPlugins: [{name: sriov, exclusive: true}]}`: "",
		`{capacity: {bandwidth: {value: "100", requestPolicy: {default: "10", validRange: {min: "5", step: ` +
			`"5"}}}}, supportedCNIPlugins: [{name: sriov, exclusive: true}]}`: "capacity[bandwidth]." +
			"requestPolicy.validRange cannot be supported on this Kubernetes version, where every " +
			"virtual function has the default, 10: a claim that requests more, up to 100, is never allocated, and " +
			"a claim that requests less, down to 5, takes 10; list the amounts in validValues to offer each of " +
			"them, or write the range in linkBandwidth, so that claims choose any amount in it",
		`{capacity: {bandwidth: {value: "100", requestPolicy: {default: "10", validRange: {min: "5", max: ` +
			`"50"}}}}, supportedCNIPlugins: [{name: sriov, exclusive: true}]}`: "capacity[bandwidth]." +
			"requestPolicy.validRange cannot be supported on this Kubernetes version, where every " +
			"virtual function has the default, 10: a claim that requests more, up to 50, is never allocated, and " +
			"a claim that requests less, down to 5, takes 10; list the amounts in validValues to offer each of " +
			"them, or write the range in linkBandwidth, so that claims choose any amount in it",
		`{allowMultipleAllocations: true, capacity: {bandwidth: {value: "100", requestPolicy: {default: "10", ` +
			`validRange: {min: "5"}}}}, supportedCNIPlugins: [{name: macvlan}]}`: "",
		`{allowMultipleAllocations: true, capacity: {a: {value: 9}, b: {value: 9}}, supportedCNIPlugins: [{name: ` +
			`macvlan, consumePerAllocation: {a: 1}}]}`: "capacity[b] has no default " +
			"request, so each claim takes 1: set requestPolicy.default",
		`{allowMultipleAllocations: true, capacity: {a: {value: 9, requestPolicy: {default: 1}}}, ` +
			`supportedCNIPlugins: [{name: ipvlan}, {name: macvlan}]}`: "macvlan and ipvlan cannot share a device, " +
			"but claims for both could get the same device: write one policy for each, with the same exclusionGroup",
		`{allowMultipleAllocations: true, capacity: {a: {value: 9, requestPolicy: {default: 1}}}, ` +
			`supportedCNIPlugins: [{name: ipvlan, exclusive: true}, {name: macvlan}]}`: "",
		`{supportedCNIPlugins: [{name: macvlan}]}`: "plugin macvlan is not exclusive, and one claim takes the device " +
			"since allowMultipleAllocations is false: set exclusive to true for the plugin, or " +
			"allowMultipleAllocations to true",
	} {
		var p v1alpha1.DeviceExposurePolicy
		if err := yaml.UnmarshalStrict([]byte("{selector: {cel: x}, exposure: "+exposure+"}"), &p.Spec); err != nil {
			t.Fatal(err)
		}
		if errs := v1alpha1.Validate(&p); len(errs) > 0 {
			t.Errorf("%s: %v", exposure, errs)
		}
		if diff := cmp.Diff(want, strings.Join(v1alpha1.Remarks(&p), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", exposure, diff)
		}
	}
}
