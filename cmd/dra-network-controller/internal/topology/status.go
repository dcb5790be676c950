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
	// ReasonExtendedResourceTaken is the reason when the name of an extended resource belongs to another class. The
	// classes are there without it.
	ReasonExtendedResourceTaken = "ExtendedResourceTaken"
	// ReasonFailed is the reason when the API server refused a change. It is tried again.
	ReasonFailed = "Failed"
)

// Outcome is what has become of the classes of a topology.
type Outcome struct {
	// Ready are the names of the classes that are as they should be, sorted.
	Ready []string
	// Taken are the classes of others that have the name of one of ours, sorted.
	Taken []resourceapi.DeviceClass
	// Named are the classes of others that have the names of extended resources of ours, sorted.
	Named []resourceapi.DeviceClass
	// Err is what went wrong.
	Err error
}

// Status returns the status of a topology. It is equal to the one that the topology has where nothing has changed.
//
// It starts from the status that is there, so that SetStatusCondition keeps the times of conditions that stay. The two
// hints exclude each other: with a topology that is not accepted, why it has no classes is not worth a second command.
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
		accepted = conditions.WithHint(accepted, validateCommand(topology), "shows each problem with its line")
	case classes.Status == metav1.ConditionFalse:
		classes = conditions.WithHint(classes, "kubectl netdra classes", "lists the classes that claims can name")
	}
	meta.SetStatusCondition(&status.Conditions, accepted)
	meta.SetStatusCondition(&status.Conditions, classes)
	return status
}

// validateCommand is what prints the problems of a topology with their lines.
func validateCommand(topology *v1alpha1.NetworkTopology) string {
	return fmt.Sprintf("kubectl get ntopo %s -o yaml | kubectl netdra chain validate -", topology.Name)
}

// rootSteps counts the steps that take a device, which is as many as the topology has classes.
func rootSteps(topology *v1alpha1.NetworkTopology) int {
	n := 0
	for i := range topology.Spec.Steps {
		if isRoot(&topology.Spec.Steps[i]) {
			n++
		}
	}
	return n
}

// classesReady is the condition ClassesReady. The cases go from what hides the others to what is least: a failure may
// be why a class is missing, and a taken name of a resource leaves classes that work.
func classesReady(topology *v1alpha1.NetworkTopology, accepted bool, outcome Outcome) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionClassesReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: topology.Generation,
	}
	switch {
	case outcome.Err != nil:
		condition.Reason, condition.Message = ReasonFailed, outcome.Err.Error()+"; it is tried again"
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

// describeExtended says what pods without a claim ask for.
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
	return "; a pod without a claim asks for the extended resources: " + strings.Join(names, ", ")
}

// describeNamed says which classes have the names already. Two classes with one extendedResourceName make the scheduler
// choose one of them by age (KEP-5004), so the name is left to the class that had it first.
func describeNamed(holders []resourceapi.DeviceClass) string {
	var names []string
	for i := range holders {
		names = append(names, fmt.Sprintf("%s (DeviceClass %s of %s)", *holders[i].Spec.ExtendedResourceName,
			holders[i].Name, holder(&holders[i])))
	}
	return fmt.Sprintf("extended resources of this topology are those of other DeviceClasses: %s; the DeviceClasses "+
		"of this topology are there without these names; choose another extendedResourceName, or remove it there",
		strings.Join(names, ", "))
}

func describeTaken(taken []resourceapi.DeviceClass) string {
	var names []string
	for i := range taken {
		names = append(names, fmt.Sprintf("%s (of %s)", taken[i].Name, holder(&taken[i])))
	}
	return fmt.Sprintf("DeviceClasses of others have the names of classes of this topology: %s; "+
		"delete or rename them, or rename the topology or its steps", strings.Join(names, ", "))
}
