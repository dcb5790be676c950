package claimspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// CheckPod returns an error if the driver cannot add interfaces to a pod.
func CheckPod(pod *corev1.Pod) error {
	if pod.Spec.HostNetwork {
		return &HostNetworkError{Pod: pod.Name}
	}
	return nil
}

// HostNetworkError is the error for a pod to which the driver cannot add interfaces because the pod uses the host's
// network.
type HostNetworkError struct{ Pod string }

func (e *HostNetworkError) Error() string {
	return fmt.Sprintf("pod %s uses the host network and cannot get interfaces; remove hostNetwork or the claim",
		e.Pod)
}

// InUseError is the error for a claim whose exclusive device is in use by another pod. The driver attaches such a
// device to only one pod at a time, even if several pods use the same claim. Both fields are namespace/name.
type InUseError struct{ Claim, Pod string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("cannot attach claim %s: pod %s uses its exclusive device; delete that pod, or give each pod "+
		"its own claim with a ResourceClaimTemplate", e.Claim, e.Pod)
}

// HasExclusive reports whether an allocation includes an exclusive device, which only one pod can use at a time. The
// driver publishes exclusive devices without allowMultipleAllocations, and the scheduler assigns a share ID to all
// other devices.
func HasExclusive(allocation *resourceapi.AllocationResult) bool {
	return slices.ContainsFunc(allocation.Devices.Results, func(result resourceapi.DeviceRequestAllocationResult) bool {
		return result.Driver == v1alpha1.DriverName && !ptr.Deref(result.AdminAccess, false) && result.ShareID == nil
	})
}

// CheckNamespace returns an error if a topology does not allow claims from a namespace.
func CheckNamespace(topology *v1alpha1.NetworkTopology, namespace string, namespaceLabels map[string]string) error {
	if topology.Spec.AllowedNamespaces == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(topology.Spec.AllowedNamespaces)
	if err != nil {
		return fmt.Errorf("NetworkTopology %s: spec.allowedNamespaces: %w", topology.Name, err)
	}
	if !selector.Matches(labels.Set(namespaceLabels)) {
		return fmt.Errorf("NetworkTopology %s may not be used in namespace %s: its allowedNamespaces require %s",
			topology.Name, namespace, selector)
	}
	return nil
}

// UnknownTopology returns the error for a class that refers to a nonexistent topology.
func UnknownTopology(name string) error {
	return fmt.Errorf("NetworkTopology %s no longer exists; create it, or delete the claim and the pod", name)
}
