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

// Reasons for the condition ClassesReady.
const (
	// ReasonReady means that a class exists for every root step.
	ReasonReady = "Ready"
	// ReasonNotAccepted means that the topology is not accepted and therefore has no classes.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNameTaken means that another owner's class has the same name as a desired class.
	ReasonNameTaken = "NameTaken"
	// ReasonExtendedResourceTaken means that another class already has one of the topology's extended resource names.
	// The topology's class is created without that name.
	ReasonExtendedResourceTaken = "ExtendedResourceTaken"
	// ReasonFailed means that the API server rejected a change, which will be retried.
	ReasonFailed = "Failed"
)

// Outcome is the result of changing a topology's classes.
type Outcome struct {
	// Ready lists the sorted names of the classes that exist with all desired values.
	Ready []string
	// Taken contains, in sorted order, other owners' classes that have the same name as a desired class.
	Taken []resourceapi.DeviceClass
	// Named contains, in sorted order, other owners' classes that have one of the desired extended resource names.
	Named []resourceapi.DeviceClass
	// Err contains the errors from failed changes.
	Err error
}

// Status returns a topology's status. If nothing has changed, the result is the current status.
//
// It starts from the current status, so that SetStatusCondition keeps the times of unchanged conditions. At most one of
// the two hints is added: if a topology is not accepted, a second command that explains the missing classes is not
// needed.
func Status(
	topology *v1alpha1.NetworkTopology, problems field.ErrorList, remarks []string, outcome Outcome,
) v1alpha1.NetworkTopologyStatus {
	status := *topology.Status.DeepCopy()
	status.DeviceClasses = slices.Clone(outcome.Ready)
	status.ClaimParameters, status.Plugins = nil, nil
	if len(problems) == 0 {
		status.ClaimParameters, status.Plugins = topology.Spec.AllowedParameters(), topology.Spec.Plugins()
	}
	summary := fmt.Sprintf("steps: %d, root steps: %d", len(topology.Spec.Steps), rootSteps(topology))
	accepted := conditions.Of(topology.Generation, summary, problems, remarks...)
	classes := classesReady(topology, len(problems) == 0, outcome)
	switch {
	case accepted.Status == metav1.ConditionFalse:
		accepted = conditions.WithHint(accepted, fmt.Sprintf(
			"kubectl get ntopo %s -o yaml | kubectl netdra chain validate -", topology.Name),
			"shows each problem with its line")
	case classes.Status == metav1.ConditionFalse:
		classes = conditions.WithHint(classes, "kubectl get ntopo", "lists the classes that claims can request")
	}
	meta.SetStatusCondition(&status.Conditions, accepted)
	meta.SetStatusCondition(&status.Conditions, classes)
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

// classesReady returns the condition ClassesReady. The cases are ordered by severity: a failure may be the reason why a
// class is missing, whereas the classes are still usable if a resource name is taken.
func classesReady(topology *v1alpha1.NetworkTopology, accepted bool, outcome Outcome) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionClassesReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: topology.Generation,
	}
	switch {
	case outcome.Err != nil:
		condition.Reason, condition.Message = ReasonFailed, outcome.Err.Error()+"; the controller retries"
	case !accepted:
		condition.Reason, condition.Message = ReasonNotAccepted, "the topology is not accepted, so it has no "+
			"DeviceClasses: see the condition Accepted"
	case len(outcome.Taken) > 0:
		condition.Reason, condition.Message = ReasonNameTaken, describeTaken(outcome.Taken)
	case len(outcome.Named) > 0:
		condition.Reason, condition.Message = ReasonExtendedResourceTaken, describeNamed(outcome.Named)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonReady
		condition.Message = "a claim needs one request for each of: " + strings.Join(outcome.Ready, ", ") +
			describeExtended(topology)
	}
	condition.Message = conditions.Bound(condition.Message)
	return condition
}

func describeExtended(topology *v1alpha1.NetworkTopology) string {
	var names []string
	for i := range topology.Spec.Steps {
		if name := topology.Spec.Steps[i].ExtendedResourceName; name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; a pod without a claim can request the extended resources: " + strings.Join(names, ", ")
}

// describeNamed lists the classes that already have the topology's extended resource names. If two classes had the same
// extendedResourceName, the scheduler would choose one of them by age (KEP-5004), so the class that had the name first
// keeps it.
func describeNamed(holders []resourceapi.DeviceClass) string {
	var names []string
	for i := range holders {
		names = append(names, fmt.Sprintf("%s (DeviceClass %s of %s)", *holders[i].Spec.ExtendedResourceName,
			holders[i].Name, holder(&holders[i])))
	}
	return fmt.Sprintf("other DeviceClasses already have the extended resources of this topology: %s; the "+
		"DeviceClasses of this topology exist without them; choose another extendedResourceName, or remove it "+
		"from the other class", strings.Join(names, ", "))
}

func describeTaken(taken []resourceapi.DeviceClass) string {
	var names []string
	for i := range taken {
		names = append(names, fmt.Sprintf("%s (of %s)", taken[i].Name, holder(&taken[i])))
	}
	return fmt.Sprintf("DeviceClasses of other owners have the names of classes of this topology: %s; "+
		"delete or rename them, or rename the topology or its steps", strings.Join(names, ", "))
}
