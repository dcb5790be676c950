package endpoints

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Annotations on a Service.
const (
	// AnnotationTopology names a NetworkTopology, or one of its root steps in the form topology/step. The Service's
	// endpoints are the addresses of the interfaces created from devices for that topology or step.
	AnnotationTopology = "networking.dra.io/endpoints-topology"
	// AnnotationSelector selects the pods by label, in the syntax of kubectl's --selector flag.
	AnnotationSelector = "networking.dra.io/endpoints-selector"
)

// Query contains a Service's parsed annotations. An empty Step means all root steps.
type Query struct {
	Topology, Step string
	Pods           labels.Selector
}

// ParseQuery parses a Service's annotations. It returns nil if the Service does not have any of them. Errors are shown
// to the Service's author.
func ParseQuery(service *corev1.Service) (*Query, error) {
	topology, asked := service.Annotations[AnnotationTopology]
	switch {
	case !asked || service.DeletionTimestamp != nil:
		return nil, nil
	case len(service.Spec.Selector) > 0:
		return nil, fmt.Errorf("cannot create endpoints: the Service has a spec.selector, so Kubernetes already "+
			"creates endpoints from the pods' primary addresses; move the selector to the annotation %s",
			AnnotationSelector)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, fmt.Errorf("cannot create endpoints for a Service of type %s; use ClusterIP with clusterIP None",
			service.Spec.Type)
	}
	if len(service.Spec.Ports) > maxPorts {
		return nil, fmt.Errorf("cannot create endpoints: the Service has more than %d ports, the limit of an "+
			"EndpointSlice; split it into several Services", maxPorts)
	}
	selector, err := labels.Parse(service.Annotations[AnnotationSelector])
	if err != nil {
		return nil, fmt.Errorf("cannot create endpoints: the annotation %s is not a valid label selector: %w; use a "+
			"selector such as app=db", AnnotationSelector, err)
	}
	if selector.Empty() {
		return nil, fmt.Errorf("cannot create endpoints: the annotation %s is missing or empty; set it to a label "+
			"selector such as app=db", AnnotationSelector)
	}
	query := &Query{Pods: selector}
	query.Topology, query.Step, _ = strings.Cut(topology, "/")
	return query, nil
}

// Group contains the properties that all endpoints in a slice have in common. A slice has one address type and one list
// of ports for all of its endpoints (KEP-752), so pods that use the same port name for different numbers need separate
// slices.
type Group struct {
	Family discoveryapi.AddressType
	// Ports contains the slice's sorted ports as JSON.
	Ports string
}

// Endpoints maps addresses to the endpoints in a group.
type Endpoints map[string]discoveryapi.Endpoint

// add adds an endpoint. Two pods can have the same address, for example a terminated pod that still exists and a newer
// pod that was assigned the address. A ready pod takes precedence; if both or neither are ready, the pod whose name
// sorts first does, so that the result does not depend on the order of the pods.
func (e Endpoints) add(endpoint discoveryapi.Endpoint) {
	address := endpoint.Addresses[0]
	if other, taken := e[address]; taken {
		ready, otherReady := *endpoint.Conditions.Ready, *other.Conditions.Ready
		if otherReady && !ready || ready == otherReady && other.TargetRef.Name < endpoint.TargetRef.Name {
			return
		}
	}
	e[address] = endpoint
}

// Wanted returns the endpoints that a Service should have. pods lists the pods in its namespace, and claims maps the
// names of the claims in its namespace to the claims. Terminated pods are omitted immediately, since their addresses
// may be reassigned while the pod object still exists.
func Wanted(
	service *corev1.Service, query *Query, pods []corev1.Pod, claims map[string]*resourceapi.ResourceClaim,
) (map[Group]Endpoints, error) {
	wanted := map[Group]Endpoints{}
	for i := range pods {
		pod := &pods[i]
		if !query.Pods.Matches(labels.Set(pod.Labels)) || pod.Status.Phase == corev1.PodSucceeded ||
			pod.Status.Phase == corev1.PodFailed {
			continue
		}
		ports, err := json.Marshal(portsOf(service, pod))
		if err != nil {
			return nil, fmt.Errorf("cannot write the ports of Service %s: %w", service.Name, err)
		}
		for name := range resourceclaim.PodClaims(pod) {
			for _, address := range addressesOf(claims[name], pod.UID, query) {
				group := Group{Family: discoveryapi.AddressTypeIPv6, Ports: string(ports)}
				if address.Is4() {
					group.Family = discoveryapi.AddressTypeIPv4
				}
				if wanted[group] == nil {
					wanted[group] = Endpoints{}
				}
				wanted[group].add(endpoint(service, pod, address))
			}
		}
	}
	return wanted, nil
}

// addressesOf returns the addresses that a claim's devices have in a pod, according to the claim's status. It returns
// none if several pods share the claim, because the status does not show which pod an address belongs to. The UID is
// compared because when a pod is recreated with the same name, as in a StatefulSet, the claim may still be reserved for
// the old pod.
func addressesOf(claim *resourceapi.ResourceClaim, pod types.UID, query *Query) []netip.Addr {
	if claim == nil || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != pod {
		return nil
	}
	devices, err := claimspec.Devices(claim)
	if err != nil {
		return nil // rejected by the driver
	}
	var found []netip.Addr
	for _, device := range ofQuery(devices, query) {
		for j := range claim.Status.Devices {
			status := &claim.Status.Devices[j]
			if status.Driver != v1alpha1.DriverName || status.Pool != device.Pool ||
				status.Device != device.Device || status.NetworkData == nil ||
				ptr.Deref(status.ShareID, "") != string(ptr.Deref(device.ShareID, "")) {
				continue
			}
			found = append(found, reachable(status.NetworkData.IPs)...)
		}
	}
	return found
}

func ofQuery(devices []claimspec.Device, query *Query) (found []*claimspec.Device) {
	for i := range devices {
		class := &devices[i].Class
		if class.NetworkTopologyRef.Name == query.Topology && (query.Step == "" || class.Step == query.Step) {
			found = append(found, &devices[i])
		}
	}
	return found
}

// reachable returns the addresses that the API server accepts in endpoints, which excludes addresses that are only
// valid on one node. The status contains addresses with a prefix length (KEP-4817).
func reachable(texts []string) []netip.Addr {
	var found []netip.Addr
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		address := prefix.Addr().Unmap()
		if !address.IsLinkLocalUnicast() && !address.IsLoopback() && !address.IsMulticast() &&
			!address.IsUnspecified() && address.Zone() == "" {
			found = append(found, address)
		}
	}
	return found
}

// endpoint returns a pod's endpoint, with the same conditions that Kubernetes would set: a pod that is being deleted is
// not ready, but it is serving as long as its readiness probe succeeds.
func endpoint(service *corev1.Service, pod *corev1.Pod, address netip.Addr) discoveryapi.Endpoint {
	serving := isReady(pod) || service.Spec.PublishNotReadyAddresses
	terminating := pod.DeletionTimestamp != nil
	e := discoveryapi.Endpoint{
		Addresses: []string{address.String()},
		Conditions: discoveryapi.EndpointConditions{Serving: ptr.To(serving), Terminating: ptr.To(terminating),
			Ready: ptr.To(service.Spec.PublishNotReadyAddresses || serving && !terminating)},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		NodeName:  ptr.To(pod.Spec.NodeName),
	}
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
		e.Hostname = ptr.To(pod.Spec.Hostname)
	}
	return e
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// portsOf returns a Service's sorted ports for a pod. Like Kubernetes, it omits named target ports that the pod does
// not have.
func portsOf(service *corev1.Service, pod *corev1.Pod) []discoveryapi.EndpointPort {
	ports := []discoveryapi.EndpointPort{}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number := port.TargetPort.IntVal
		if port.TargetPort.Type == intstr.String {
			number = namedPort(pod, port.TargetPort.StrVal, port.Protocol)
		} else if number == 0 {
			number = port.Port
		}
		if number != 0 {
			ports = append(ports, discoveryapi.EndpointPort{Name: ptr.To(port.Name), Protocol: ptr.To(port.Protocol),
				Port: ptr.To(number), AppProtocol: port.AppProtocol})
		}
	}
	slices.SortFunc(ports, func(a, b discoveryapi.EndpointPort) int { return strings.Compare(*a.Name, *b.Name) })
	return ports
}

// namedPort returns the number of a named port, or 0 if no container has it. Like Kubernetes, it checks containers
// first, and then sidecars (KEP-753).
func namedPort(pod *corev1.Pod, name string, protocol corev1.Protocol) int32 {
	for i, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for j := range containers {
			if i == 1 && !isSidecar(&containers[j]) {
				continue
			}
			for _, port := range containers[j].Ports {
				if port.Name == name && port.Protocol == protocol {
					return port.ContainerPort
				}
			}
		}
	}
	return 0
}

// isSidecar reports whether an init container runs for the pod's entire lifetime.
func isSidecar(container *corev1.Container) bool {
	return ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}
