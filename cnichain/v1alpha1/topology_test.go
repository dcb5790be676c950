package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// The parameters of a claim that does not name a step apply to the root step, so parameters that only other steps allow
// are listed with the names of those steps.
func TestAllowedParametersNameLaterSteps(t *testing.T) {
	spec := v1alpha1.NetworkTopologySpec{Steps: []v1alpha1.Step{
		{Name: "link", ClaimParameters: []v1alpha1.ClaimParameter{v1alpha1.ClaimIPs}},
		{Name: "addr", DependOn: []string{"link"}, ClaimParameters: []v1alpha1.ClaimParameter{v1alpha1.ClaimMAC,
			v1alpha1.ClaimIPs}},
		{Name: "last", DependOn: []string{"addr"}, ClaimParameters: []v1alpha1.ClaimParameter{v1alpha1.ClaimMAC,
			v1alpha1.ClaimInterfaceName}},
	}}
	want := []string{"interfaceName (step: last)", "ips", "mac (step: addr or last)"}
	if diff := cmp.Diff(want, spec.AllowedParameters()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
