package topology

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Reasons of the condition ClassesReady.
const (
	// ReasonReady is the reason when there is a class for every root step.
	ReasonReady = "Ready"
	// ReasonNotAccepted is the reason when the topology isn't accepted and so has no classes.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNameTaken is the reason when the name of a class belongs to somebody else.
	ReasonNameTaken = "NameTaken"
	// ReasonFailed is the reason when the API server refused a change. It is tried again.
	ReasonFailed = "Failed"
)

// Outcome is what has become of the classes of a topology.
type Outcome struct {
	// Ready are the names of the classes that are as they should be, sorted.
	Ready []string
	// Taken are the classes of others that have the name of one of ours, sorted.
	Taken []resourceapi.DeviceClass
	// Err is what went wrong.
	Err error
}

// Status returns the status of a topology. It is equal to the one that the topology has where nothing has changed.
func Status(
	topology *v1alpha1.NetworkTopology, problems field.ErrorList, remarks []string, outcome Outcome,
) v1alpha1.NetworkTopologyStatus {
	status := *topology.Status.DeepCopy()
	status.DeviceClasses = slices.Clone(outcome.Ready)
	summary := fmt.Sprintf("steps: %d, root steps: %d", len(topology.Spec.Steps), rootSteps(topology))
	meta.SetStatusCondition(&status.Conditions, conditions.Of(topology.Generation, summary, problems, remarks...))
	meta.SetStatusCondition(&status.Conditions, classesReady(topology.Generation, len(problems) == 0, outcome))
	return status
}

func rootSteps(topology *v1alpha1.NetworkTopology) int {
	n := 0
	for i := range topology.Spec.Steps {
		if isRoot(&topology.Spec.Steps[i]) {
			n++
		}
	}
	return n
}

func classesReady(generation int64, accepted bool, outcome Outcome) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionClassesReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: generation,
	}
	switch {
	case outcome.Err != nil:
		condition.Reason, condition.Message = ReasonFailed, outcome.Err.Error()+"; it is tried again"
	case !accepted:
		condition.Reason, condition.Message = ReasonNotAccepted, "the topology is not accepted, so it has no "+
			"DeviceClasses: see the condition Accepted"
	case len(outcome.Taken) > 0:
		condition.Reason, condition.Message = ReasonNameTaken, describeTaken(outcome.Taken)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonReady
		condition.Message = "a claim needs one request for each of: " + strings.Join(outcome.Ready, ", ")
	}
	condition.Message = conditions.Bound(condition.Message)
	return condition
}

func describeTaken(taken []resourceapi.DeviceClass) string {
	var names []string
	for i := range taken {
		names = append(names, fmt.Sprintf("%s (of %s)", taken[i].Name, holder(&taken[i])))
	}
	return fmt.Sprintf("DeviceClasses of others have the names of classes of this topology: %s; "+
		"delete or rename them, or rename the topology or its steps", strings.Join(names, ", "))
}
