package doctor

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

func objectChecks() []check {
	return []check{
		{group: groupObjects, name: "policies", fine: "every policy is accepted", needs: needsCaches,
			inspect: checkPolicies},
		{group: groupObjects, name: "topologies", fine: "every topology is accepted and has its DeviceClasses",
			needs: needsCaches, inspect: checkTopologies},
	}
}

// accepted is the condition type that topologies and policies share.
const accepted = chainapi.ConditionAccepted

func checkPolicies(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.Inputs.Policies {
		p := &input.Driver.Inputs.Policies[i]
		found = append(found, checkConditions("DeviceExposurePolicy "+p.Name, p.Status.Conditions,
			"its devices are not offered; if it is an exclude policy, all devices of its nodes are hidden",
			accepted)...)
		found = append(found, checkNames(input, p)...)
	}
	return found
}

// checkNames finds device names in a policy that are probably misspellings of this node's links. It only checks
// policies that apply to this node and offer no device on any node, because a policy for many nodes may name devices
// that some nodes lack.
func checkNames(input *Input, p *policyapi.DeviceExposurePolicy) []Finding {
	if !meta.IsStatusConditionTrue(p.Status.Conditions, accepted) ||
		!meta.IsStatusConditionFalse(p.Status.Conditions, policyapi.ConditionDevicesOffered) {
		return nil
	}
	node := policy.Node{Name: input.Driver.Inputs.Node, Labels: input.Driver.Inputs.Labels}
	if here, err := policy.SelectsNode(p, node); err != nil || !here {
		return nil
	}
	links := make([]discovery.Device, 0, len(input.Links))
	for _, link := range input.Links {
		name := discovery.IfName(link.Name)
		links = append(links, discovery.Device{Name: name, Interface: name})
	}
	meant := policy.NearNames(p.Spec.Selector.CEL, links)
	if len(meant) == 0 {
		return nil
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("DeviceExposurePolicy %s offers no device on any node: %s", p.Name,
			strings.Join(meant, "; ")), Where: "DeviceExposurePolicy " + p.Name,
		Why: "a name in its selector is probably misspelt",
		Do:  "correct it and apply it again, or ignore this if it is for future nodes",
	}}
}

func checkTopologies(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.State.Topologies {
		topology := &input.Driver.State.Topologies[i]
		found = append(found, checkConditions("NetworkTopology "+topology.Name, topology.Conditions,
			"claims for it are rejected, or have no DeviceClass", accepted, chainapi.ConditionClassesReady)...)
	}
	return found
}

// checkConditions reports the first condition that is missing or not true. The later ones usually follow from it.
func checkConditions(object string, conditions []metav1.Condition, why string, kinds ...string) []Finding {
	for _, kind := range kinds {
		condition := meta.FindStatusCondition(conditions, kind)
		switch {
		case condition == nil:
			return []Finding{{
				Level: Warn, What: object + " was not processed by the controller: it has no condition " +
					kind, Where: object,
				Why: why, Do: "check with kubectl -n dra-network get pods that dra-network-controller is running",
			}}
		case condition.Status != metav1.ConditionTrue:
			return []Finding{{
				Level: Fail, What: fmt.Sprintf("%s is not %s: %s", object, kind,
					condition.Message), Where: object, Why: why,
				Do: "correct it and apply it again",
			}}
		}
	}
	return nil
}
