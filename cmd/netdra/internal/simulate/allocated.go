package simulate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// isAllocated reports whether a trial is for a pod in the cluster whose claims are all allocated. Such a pod is not
// waiting for the scheduler.
func (t *trial) isAllocated() bool {
	isPending := func(claim *resourceapi.ResourceClaim) bool { return claim.Status.Allocation == nil }
	return t.named && len(t.missing) == 0 && !slices.ContainsFunc(t.claims, isPending)
}

// allocatedAnswer returns the answer for a pod whose claims are all allocated: the devices, and the problems that the
// node's driver reported.
func allocatedAnswer(t *trial) Answer {
	var verdict Verdict
	if node := t.pod.Spec.NodeName; node != "" {
		verdict.Nodes = []string{node}
	}
	for _, claim := range t.claims {
		verdict.Results = append(verdict.Results, *claim.Status.Allocation)
	}
	answer := answerOf(t, &verdict)
	answer.Allocated, answer.Refused = true, attachProblems(t.claims)
	answer.Fits = len(answer.Refused) == 0
	answer.Note = fmt.Sprintf("all claims of pod %s have their devices, and ", fullName(t.pod))
	if t.pod.Status.Phase == corev1.PodRunning {
		answer.Note += "it is running"
	} else {
		answer.Note += fmt.Sprintf("its driver reports no problem; \"kubectl describe pod %[1]s -n %[2]s\" and "+
			"\"kubectl netdra claims pod/%[1]s -n %[2]s\" show what it waits for", t.pod.Name, namespaceOf(t.pod))
	}
	return answer
}

// attachProblems returns the problems that the node's driver reported in the status of the claims.
func attachProblems(claims []*resourceapi.ResourceClaim) []string {
	var problems []string
	for _, claim := range claims {
		for i := range claim.Status.Devices {
			device := &claim.Status.Devices[i]
			ready := meta.FindStatusCondition(device.Conditions, "Ready")
			if device.Driver != v1alpha1.DriverName || ready == nil || ready.Status != metav1.ConditionFalse {
				continue
			}
			problem := fmt.Sprintf("claim %s: %s: %s", fullName(claim), ready.Reason, ready.Message)
			if !slices.Contains(problems, problem) {
				problems = append(problems, problem)
			}
		}
	}
	return problems
}
