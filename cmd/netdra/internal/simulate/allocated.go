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

// A pod whose claims all have their devices waits for something else than the scheduler.

// isAllocated reports whether a trial is of a pod of the cluster whose claims all have their devices.
func (t *trial) isAllocated() bool {
	return t.named && !slices.ContainsFunc(t.claims, func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation == nil
	})
}

// setAllocated records that the claims already had their devices, and on which node: the allocator's answer contains
// every node from which they can be reached.
func (t *Answer) setAllocated(trial *trial) {
	t.Allocated = true
	if node := trial.pod.Spec.NodeName; t.Fits && node != "" {
		t.Nodes = []string{node}
	}
}

// hasStarted reports whether a container of a pod has ever started: the driver holds all of them until the devices are
// attached. The pod's sandbox says nothing, since a chain may go on when it is made.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(container corev1.ContainerStatus) bool {
			return container.State.Running != nil || container.State.Terminated != nil || container.RestartCount > 0
		})
}

// attachProblems returns the problems that the driver of the node has written into claims: for example, only the node
// knows that the binary of a plugin is missing.
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

// allocatedNote is what can be said of a pod whose claims are all as they should be.
func allocatedNote(pod *corev1.Pod) string {
	note := fmt.Sprintf("all claims of pod %s have their devices, and ", fullName(pod))
	if pod.Status.Phase == corev1.PodRunning {
		return note + "it is running"
	}
	return note + fmt.Sprintf("nothing known here keeps it from starting; \"kubectl describe pod %[1]s -n %[2]s\" and "+
		"\"kubectl netdra claims pod/%[1]s -n %[2]s\" say what it waits for", pod.Name, namespaceOf(pod))
}
