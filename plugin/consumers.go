package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// shareable reports whether several pods can share a claim. It returns false for a claim that kube-controller-manager
// or kube-scheduler generated for a single pod, from a template or for its extended resources (KEP-4381, KEP-5004).
func shareable(claim *resourceapi.ResourceClaim) bool {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return true
	}
	_, fromTemplate := claim.Annotations[resourceapi.PodResourceClaimAnnotation]
	_, extended := claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation]
	if !fromTemplate && !extended {
		return true
	}
	return slices.ContainsFunc(claim.Status.ReservedFor,
		func(consumer resourceapi.ResourceClaimConsumerReference) bool {
			return consumer.UID != owner.UID
		})
}

// addConsumers adds to the record the pods that the claim is reserved for, and returns the pods that exist in the API
// server. The claim is reserved for pods by name or for PodGroups (KEP-5729); for a PodGroup, addConsumers adds the
// members that are currently on this node. attaches reports whether the pods get interfaces. addConsumers returns an
// error for a claim without a reservation: the kubelet never prepares such a claim, and if another caller prepared it,
// no component would ever release it.
func (d *draPlugin) addConsumers(
	ctx context.Context, claim *resourceapi.ResourceClaim, record *claims.Record, attaches bool,
) ([]*corev1.Pod, error) {
	usable := false
	var pods []*corev1.Pod
	for _, reference := range claim.Status.ReservedFor {
		var members []*corev1.Pod
		switch {
		case isPod(reference):
			pod, err := d.Cluster.pod(ctx, claim.Namespace, reference.Name, string(reference.UID))
			if err != nil {
				return nil, err
			}
			if pod == nil { // it no longer exists
				record.Consumers = append(record.Consumers, claims.Consumer{PodUID: string(reference.UID)})
			} else {
				members = []*corev1.Pod{pod}
			}
		case reference.APIGroup == schedulingapi.GroupName && reference.Resource == "podgroups":
			members = d.Cluster.podsWithClaim(claim.Namespace, claim.Name)
			members = slices.DeleteFunc(members, func(pod *corev1.Pod) bool {
				return pod.Spec.SchedulingGroup == nil ||
					ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "") != reference.Name
			})
		default:
			continue
		}
		usable = true
		for _, pod := range members {
			consumer, err := consumerOf(pod, claim, attaches)
			if err != nil {
				return nil, err
			}
			record.Consumers = append(record.Consumers, consumer)
		}
		pods = append(pods, members...)
	}
	if attaches && !usable {
		return nil, errors.New("it is not reserved for a pod or PodGroup, and only pods get interfaces; add the " +
			"pod to status.reservedFor")
	}
	return pods, nil
}

func isPod(reference resourceapi.ResourceClaimConsumerReference) bool {
	return reference.APIGroup == "" && reference.Resource == "pods"
}

func consumerOf(pod *corev1.Pod, claim *resourceapi.ResourceClaim, attaches bool) (claims.Consumer, error) {
	if attaches {
		if err := claimspec.CheckPod(pod); err != nil {
			return claims.Consumer{}, err
		}
	}
	names, err := claimNames(pod)
	return claims.Consumer{PodUID: string(pod.UID), Position: position(pod, claim), Claims: names}, err
}

// warnOfContainers sends an event to each pod that has containers that do not name the claim: while the driver is down,
// only containers that name the claim are prevented from starting.
func (d *draPlugin) warnOfContainers(claim *resourceapi.ResourceClaim) {
	for _, pod := range d.Cluster.podsWithClaim(claim.Namespace, claim.Name) {
		if names := without(pod, claim); len(names) > 0 {
			d.Statuses.WarnPod(executor.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
				"ContainerWithoutClaim", fmt.Sprintf("these containers do not name claim %s: %s; during an update "+
					"of the network driver they could start without the pod's interfaces; add the claim to "+
					"resources.claims of each container", claim.Name, strings.Join(names, ", ")))
		}
	}
}

// without returns the names of the pod's containers that do not name the claim. For a claim that was created for
// extended resources, it returns none, since such a claim concerns only the containers that request the resources.
func without(pod *corev1.Pod, claim *resourceapi.ResourceClaim) []string {
	var names []string
	i := position(pod, claim)
	if i == len(pod.Spec.ResourceClaims) {
		return nil
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.ContainsFunc(container.Resources.Claims,
			func(c corev1.ResourceClaim) bool { return c.Name == pod.Spec.ResourceClaims[i].Name }) {
			names = append(names, container.Name)
		}
	}
	return names
}

// position returns the index of a claim in the pod's resourceClaims.
func position(pod *corev1.Pod, claim *resourceapi.ResourceClaim) int {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && name != nil && *name == claim.Name {
			return i
		}
	}
	return len(pod.Spec.ResourceClaims) // the claim for the pod's extended resources comes last
}
