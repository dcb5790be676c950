package cnichain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// spec is what the claim asks of a topology.
func (b *Binding) spec(topology *v1alpha1.NetworkTopology) claimspec.Spec {
	spec := claimspec.Spec{Topology: topology, Claim: b.Claim.String()}
	for i := range b.Devices {
		spec.Roots = append(spec.Roots, claimspec.Root{Step: b.Devices[i].Step, Parameters: b.Devices[i].Parameters})
	}
	return spec
}

// applyParameters gives the steps of an instance what the claim sets of them.
func (c *compiler) applyParameters(instance int, steps []PlanStep) {
	parameters, problems := c.spec.Parameters(instance)
	c.problems = append(c.problems, problems...)
	for i := range steps {
		given := parameters[steps[i].Name]
		steps[i].MAC, steps[i].IPs = given.MAC, given.IPs
		steps[i].IfName = cmp.Or(given.InterfaceName, steps[i].IfName)
	}
}

// verifyClaimParams says whether a plugin has done what the claim wants: some ignore it, and a pod with another address than it was promised
// must not run.
func verifyClaimParams(step *PlanStep, mac string, result *types100.Result) error {
	if step.MAC != "" && mac != step.MAC {
		return fmt.Errorf("%s gave the interface the MAC address %s although the claim wants %s: it does not know the capability mac; remove it from claimParameters of the step", step.Type, mac, step.MAC)
	}
	for _, wanted := range step.IPs {
		prefix, err := netip.ParsePrefix(wanted)
		if err != nil {
			return err
		}
		given := slices.ContainsFunc(result.IPs, func(ip *types100.IPConfig) bool { return ip.Address.IP.Equal(prefix.Addr().AsSlice()) })
		if !given {
			return fmt.Errorf("%s did not give the interface the address %s that the claim wants: its IPAM plugin does not know the capability ips; remove it from claimParameters of the step", step.Type, wanted)
		}
	}
	return nil
}
