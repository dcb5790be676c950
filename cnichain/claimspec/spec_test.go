package claimspec_test

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
)

// refusal returns the error for an invalid case. It runs the checks in the same order as the driver: first the claim,
// then its pod, and then each topology.
func refusal(t *testing.T, bad claimspectest.Case) string {
	claims, pod := bad.Allocated(t)
	topologies := claimspectest.TopologiesByName(t)
	for _, claim := range claims {
		devices, err := claimspec.Devices(claim)
		if err == nil {
			err = claimspec.CheckPod(pod)
		}
		if err != nil {
			return err.Error()
		}
		for _, name := range claimspec.Topologies(devices) {
			if topologies[name] == nil {
				return claimspec.UnknownTopology(name).Error()
			}
			spec := claimspec.SpecOf(topologies[name], claim.Namespace+"/"+claim.Name, devices)
			if problems := spec.Check(); len(problems) > 0 {
				return "NetworkTopology " + name + ": " + problems.ToAggregate().Error()
			}
		}
	}
	return ""
}

func TestBadClaimsAreRefused(t *testing.T) {
	for _, bad := range claimspectest.Cases(t) {
		t.Run(bad.Name, func(t *testing.T) {
			got := refusal(t, bad)
			for _, want := range bad.Wants {
				if !strings.Contains(got, want) {
					t.Errorf("error = %q, want %q", got, want)
				}
			}
		})
	}
}
