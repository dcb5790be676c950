package endpoints

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits on the size of a pod or Service in the cache. Users control the number and size of these objects.
const (
	// maxText is the maximum size, in bytes, of an annotation on a Service and of all labels on a pod combined.
	maxText = 4096
	// maxPorts is the maximum number of ports in a Service and in a pod, because an EndpointSlice can have at most 100
	// ports (discovery/v1, EndpointSlice.ports).
	maxPorts = 100
	// maxClaims is the maximum number of claims in a pod.
	maxClaims = 256
)

// tooLong replaces an annotation of more than maxText bytes. It is not a valid selector, so an event is emitted for the
// Service.
const tooLong = "(longer than 4096 bytes)"

// TransformService reduces a Service to the fields that determine its endpoints, before the cache stores it. A Service
// without the annotation is reduced to its identity.
func TransformService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("cannot cache a %T as a Service; report this as a bug", object)
	}
	kept := &corev1.Service{ObjectMeta: identity(&service.ObjectMeta)}
	if _, asked := service.Annotations[AnnotationTopology]; !asked {
		return kept, nil
	}
	kept.Annotations = map[string]string{}
	for _, name := range []string{AnnotationTopology, AnnotationSelector} {
		if value, found := service.Annotations[name]; found {
			if len(value) > maxText {
				value = tooLong
			}
			kept.Annotations[name] = value
		}
	}
	kept.Spec = corev1.ServiceSpec{Type: service.Spec.Type, ClusterIP: service.Spec.ClusterIP,
		PublishNotReadyAddresses: service.Spec.PublishNotReadyAddresses}
	if len(service.Spec.Selector) > 0 {
		kept.Spec.Selector = map[string]string{"": ""} // ParseQuery only checks whether the selector is empty
	}
	kept.Spec.Ports = service.Spec.Ports[:min(len(service.Spec.Ports), maxPorts+1)] // ParseQuery rejects the excess
	return kept, nil
}

// TransformPod reduces a pod to the fields that endpoints depend on, before the cache stores it. A pod that has no
// claims or exceeds one of the limits is reduced to its identity and does not become an endpoint. Containers are
// reduced to their ports, in order, because the first port with a given name takes precedence. The only init containers
// that are kept are sidecars.
func TransformPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("cannot cache a %T as a Pod; report this as a bug", object)
	}
	kept := &corev1.Pod{ObjectMeta: identity(&pod.ObjectMeta)}
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil || isTooLarge(pod) {
		return kept, nil
	}
	kept.Labels = pod.Labels
	kept.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Hostname: pod.Spec.Hostname, Subdomain: pod.Spec.Subdomain,
		ResourceClaims: pod.Spec.ResourceClaims}
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Ports: ports})
		}
	}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if isSidecar(container) && len(container.Ports) > 0 {
			kept.Spec.InitContainers = append(kept.Spec.InitContainers,
				corev1.Container{Ports: container.Ports, RestartPolicy: container.RestartPolicy})
		}
	}
	kept.Status = corev1.PodStatus{Phase: pod.Status.Phase, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			kept.Status.Conditions = append(kept.Status.Conditions,
				corev1.PodCondition{Type: condition.Type, Status: condition.Status})
		}
	}
	return kept, nil
}

func isTooLarge(pod *corev1.Pod) bool {
	text, ports := 0, 0
	for key, value := range pod.Labels {
		text += len(key) + len(value)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			ports += len(containers[i].Ports)
		}
	}
	return text > maxText || ports > maxPorts || len(pod.Spec.ResourceClaims) > maxClaims
}

// identity returns the metadata that the cache and the work queue need for every object.
func identity(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID,
		ResourceVersion: meta.ResourceVersion, DeletionTimestamp: meta.DeletionTimestamp}
}
