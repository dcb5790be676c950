package claimspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// CheckPod refuses a pod that cannot be given interfaces.
func CheckPod(pod *corev1.Pod) error {
	if pod.Spec.HostNetwork {
		return fmt.Errorf("pod %s uses the host's network and cannot be given interfaces; remove hostNetwork or the "+
			"claim",
			pod.Name)
	}
	return nil
}

// CheckNamespace refuses claims of a namespace that a topology does not allow.
func CheckNamespace(topology *v1alpha1.NetworkTopology, namespace string, namespaceLabels map[string]string) error {
	if topology.Spec.AllowedNamespaces == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(topology.Spec.AllowedNamespaces)
	if err != nil {
		return fmt.Errorf("NetworkTopology %s: spec.allowedNamespaces: %w", topology.Name, err)
	}
	if !selector.Matches(labels.Set(namespaceLabels)) {
		return fmt.Errorf("NetworkTopology %s may not be used in namespace %s: its allowedNamespaces want %s",
			topology.Name, namespace, selector)
	}
	return nil
}

// UnknownTopology is the error for a class that names a topology which does not exist.
func UnknownTopology(name string) error {
	return fmt.Errorf("NetworkTopology %s does not exist any more; create it, or delete the claim and the pod", name)
}
