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

// If all of a pod's claims have devices, the pod is not waiting for the scheduler.

// isAllocated reports whether a trial is for a pod in the cluster whose claims are all allocated.
func (t *trial) isAllocated() bool {
	return t.named && !slices.ContainsFunc(t.claims, func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation == nil
	})
}

func (t *trial) hasStarted() bool { return t.pod != nil && hasStarted(t.pod) }

// hasStarted reports whether any container in a pod has ever started. The driver blocks all containers until the
// devices are attached. The existence of a sandbox proves nothing, because a chain may still be running in it.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(container corev1.ContainerStatus) bool {
			return container.State.Running != nil || container.State.Terminated != nil || container.RestartCount > 0
		})
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

func allocatedNote(pod *corev1.Pod) string {
	note := fmt.Sprintf("all claims of pod %s have their devices, and ", fullName(pod))
	if pod.Status.Phase == corev1.PodRunning {
		return note + "it is running"
	}
	return note + fmt.Sprintf("no known problem prevents it from starting; \"kubectl describe pod %[1]s -n %[2]s\" "+
		"and \"kubectl netdra claims pod/%[1]s -n %[2]s\" show what it waits for", pod.Name, namespaceOf(pod))
}
