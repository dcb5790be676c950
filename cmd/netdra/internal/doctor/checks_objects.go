package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// accepted is the condition type used by both topologies and policies.
const accepted = chainapi.ConditionAccepted

func checkPolicies(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.Inputs.Policies {
		p := &input.Driver.Inputs.Policies[i]
		found = append(found, checkConditions("DeviceExposurePolicy "+p.Name, p.Status.Conditions,
			"its devices are not offered; if it is an exclude policy, all devices of its nodes are hidden",
			accepted)...)
	}
	return found
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

// checkConditions reports the first condition that is missing or not true. Problems with later conditions usually
// follow from it.
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
