package claimspec

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	bandwidth = "bandwidth"
	// amountInTemplate is the field of a step in templates (see package template).
	amountInTemplate = "capacity." + bandwidth
)

// UnusedBandwidth returns remarks about requests for an amount of bandwidth that no step of the claim's topologies
// uses: the scheduler reserves the amount, but nothing limits the pod's traffic to it. topologies are the topologies
// that the claim requests.
func UnusedBandwidth(claim *resourceapi.ResourceClaim, topologies []*v1alpha1.NetworkTopology) (remarks []string) {
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly == nil || request.Exactly.Capacity == nil {
			continue
		}
		_, isRequested := request.Exactly.Capacity.Requests[v1alpha1.DriverName+"/"+bandwidth]
		users := slices.Clone(topologies)
		if root, found := rootOf(request.Exactly.DeviceClassName, topologies); found {
			users = slices.DeleteFunc(users,
				func(t *v1alpha1.NetworkTopology) bool { return t.Name != root.NetworkTopologyRef.Name })
		}
		if !isRequested || len(users) == 0 || slices.ContainsFunc(users, usesBandwidth) {
			continue
		}
		names := make([]string, len(users))
		for i, topology := range users {
			names[i] = topology.Name
		}
		remarks = append(remarks, fmt.Sprintf("request %s reserves bandwidth, but no step of NetworkTopology %s uses "+
			"{{ device.%s }}, so the traffic is not limited to it", request.Name, strings.Join(names, ", "),
			amountInTemplate))
	}
	return remarks
}

func usesBandwidth(topology *v1alpha1.NetworkTopology) bool {
	return slices.ContainsFunc(topology.Spec.Steps, func(step v1alpha1.Step) bool {
		return step.Config != nil && strings.Contains(string(step.Config.Raw), amountInTemplate)
	})
}
