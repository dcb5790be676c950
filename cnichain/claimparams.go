package cnichain

import (
	"cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// spec combines a topology with the claim's parameters.
func (b *Binding) spec(topology *v1alpha1.NetworkTopology) claimspec.Spec {
	spec := claimspec.Spec{Topology: topology, Claim: b.Claim.String()}
	for i := range b.Devices {
		spec.Roots = append(spec.Roots, claimspec.Root{Step: b.Devices[i].Step, Parameters: b.Devices[i].Parameters})
	}
	return spec
}

// applyParameters applies the claim's parameters to the steps of an instance.
func (c *compiler) applyParameters(instance int, steps []PlanStep) {
	parameters, problems := c.spec.Parameters(instance)
	if len(problems) == 0 && !c.binding.WithoutClaim {
		problems = c.spec.CheckAddresses(parameters)
	}
	c.problems = append(c.problems, problems...)
	for i := range steps {
		given := parameters[steps[i].Name]
		steps[i].MAC, steps[i].IPs = given.MAC, given.IPs
		steps[i].IfName = cmp.Or(given.InterfaceName, steps[i].IfName)
	}
}
