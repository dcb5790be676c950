package slices_test

import (
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// railCards returns three NICs with two virtual functions each.
func railCards() []discovery.Device {
	var devices []discovery.Device
	for name, bus := range map[string]string{"card0": "0000:18", "card1": "0000:40", "card2": "0000:4f"} {
		for _, d := range pf(name, 2) {
			d.PCIAddress = discovery.PCIAddress(strings.Replace(string(d.PCIAddress), "0000:03", bus, 1))
			d.PFAddress = discovery.PCIAddress(strings.Replace(string(d.PFAddress), "0000:03", bus, 1))
			devices = append(devices, d)
		}
	}
	return devices
}

// withRails adds a constraint to the claim: the rails of all requests must match or, if match is false, be distinct.
func withRails(claim *resourceapi.ResourceClaim, match bool) *resourceapi.ResourceClaim {
	rail := resourceapi.FullyQualifiedName("example.com/rail")
	constraint := resourceapi.DeviceConstraint{DistinctAttribute: &rail}
	if match {
		constraint = resourceapi.DeviceConstraint{MatchAttribute: &rail}
	}
	claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{constraint}
	return claim
}

// The scheduler distinguishes virtual functions by their rails, which a table assigns to their physical functions and
// to one of the virtual functions. Functions without a rail never satisfy a constraint: two such functions do not have
// matching rails.
func TestRailsOfVirtualFunctions(t *testing.T) {
	policy := vf(`
  supportedCNIPlugins: [{name: sriov, exclusive: true}]
  computedAttributes: [{name: firmware, cel: 'semver("1.2.3")'}]
  attributesByPCIAddress:
  - {pciAddress: "0000:18:00.0", attributes: {example.com/rail: 0}}
  - {pciAddress: "0000:40:00.0", attributes: {example.com/rail: 1}}
  - {pciAddress: "0000:40:01.1", attributes: {example.com/rail: 2}}`)
	for cluster, features := range clusters() {
		t.Run(cluster, func(t *testing.T) {
			s := newScheduler(t, buildWith(t, features, railCards(), policy))
			if got, _ := s.cycle(withRails(s.claim("sriov", "sriov", "sriov", "sriov"), false)); len(got) > 0 {
				t.Errorf("four functions on different rails got %v, but there are only three rails", got)
			}
			got, keys := s.cycle(withRails(s.claim("sriov", "sriov", "sriov"), false))
			stdslices.Sort(got)
			if len(got) != 3 || !strings.HasPrefix(got[0], "card0") || got[1] != "card1v0" || got[2] != "card1v1" {
				t.Errorf("three functions on different rails got %v, want a card0 function, card1v0 and card1v1", got)
			}
			if got, _ := s.cycle(withRails(s.claim("sriov", "sriov"), true)); len(got) > 0 {
				t.Errorf("two functions on the same rail got %v, but only one function with a rail was left", got)
			}
			s.release(keys...)
			got, _ = s.cycle(withRails(s.claim("sriov", "sriov"), true))
			stdslices.Sort(got)
			if strings.Join(got, " ") != "card0v0 card0v1" {
				t.Errorf("two functions on the same rail got %v, want card0v0 and card0v1", got)
			}
			if got, _ := s.cycle(s.claim("sriov", "sriov", "sriov", "sriov")); len(got) != 4 {
				t.Errorf("four functions got %v, want four devices, including those without a rail", got)
			}
		})
	}
}
