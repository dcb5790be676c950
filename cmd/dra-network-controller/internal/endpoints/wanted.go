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

// Annotations of a Service.
const (
	// AnnotationTopology names a NetworkTopology, or one of its root steps as topology/step: the Service's endpoints
	// are addresses of interfaces that are made with its devices.
	AnnotationTopology = "networking.dra.io/endpoints-topology"
	// AnnotationSelector selects the pods by labels, in the form of kubectl's --selector.
	AnnotationSelector = "networking.dra.io/endpoints-selector"
)

// Query is what a Service asks for. An empty Step stands for all root steps.
type Query struct {
	Topology, Step string
	Pods           labels.Selector
}

// ParseQuery reads the annotations of a Service. Without ours it returns nil; an error is for the Service's author.
func ParseQuery(service *corev1.Service) (*Query, error) {
	topology, asked := service.Annotations[AnnotationTopology]
	switch {
	case !asked || service.DeletionTimestamp != nil:
		return nil, nil
	case len(service.Spec.Selector) > 0:
		return nil, fmt.Errorf("cannot make endpoints: the Service has a spec.selector, by which Kubernetes makes "+
			"others of the pods' first addresses; move it to the annotation %s", AnnotationSelector)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, fmt.Errorf("cannot make endpoints of a Service of type %s; use ClusterIP with clusterIP None",
			service.Spec.Type)
	}
	if len(service.Spec.Ports) > maxPorts {
		return nil, fmt.Errorf("cannot make endpoints: the Service has more than %d ports, and an EndpointSlice cannot; "+
			"split it into several Services", maxPorts)
	}
	selector, err := labels.Parse(service.Annotations[AnnotationSelector])
	if err != nil {
		return nil, fmt.Errorf("cannot make endpoints: the annotation %s is no selector of labels such as app=db: %w",
			AnnotationSelector, err)
	}
	if selector.Empty() {
		return nil, fmt.Errorf("cannot make endpoints: say in the annotation %s which pods they are, such as app=db",
			AnnotationSelector)
	}
	query := &Query{Pods: selector}
	query.Topology, query.Step, _ = strings.Cut(topology, "/")
	return query, nil
}

// Group is what all endpoints of a slice have in common. A slice has one address type and one list of ports for all of
// its endpoints (KEP-752), so pods whose named ports have other numbers are in slices of their own.
type Group struct {
	Family discoveryapi.AddressType
	// Ports are those of the slice as JSON, sorted.
	Ports string
}

// Endpoints are the endpoints of a group, by address.
type Endpoints map[string]discoveryapi.Endpoint

// add adds an endpoint. Of two pods with one address, such as one that has ended and has not gone yet and one that was
// given its address since, it is that of the one that is ready, and else of the first by name, so that it does not
// change with the order of the pods.
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

// Wanted are the endpoints that a Service shall have. Pods and claims are those of its namespace, claims by name. Pods
// that ended are left out at once, since their addresses may be given to others while the pod object stays.
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

// addressesOf are the addresses that a claim's devices have in a pod, by its status. Of a claim that several pods use
// the status does not say whose an address is, so it has none. The UID is compared: a pod that was made again under its
// name, as in a StatefulSet, may find a claim that is still reserved for the old one.
func addressesOf(claim *resourceapi.ResourceClaim, pod types.UID, query *Query) []netip.Addr {
	if claim == nil || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != pod {
		return nil
	}
	devices, err := claimspec.Devices(claim)
	if err != nil {
		return nil // refused by the driver
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

// ofQuery are the devices of the topology, and of its step, that a Service asks for.
func ofQuery(devices []claimspec.Device, query *Query) (found []*claimspec.Device) {
	for i := range devices {
		class := &devices[i].Class
		if class.NetworkTopologyRef.Name == query.Topology && (query.Step == "" || class.Step == query.Step) {
			found = append(found, &devices[i])
		}
	}
	return found
}

// reachable are the addresses that the API server takes as those of endpoints: none that mean something on one node
// only. Status has addresses with their prefix length (KEP-4817).
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

// endpoint has the conditions that Kubernetes gives endpoints of pods: a pod that is being deleted is not ready, and
// serves while its probe says so.
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

// portsOf are the ports of a Service on a pod, sorted. One that is named in the Service and not in the pod is left out,
// as Kubernetes does.
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

// namedPort is 0 if no container has a port of that name. As for Kubernetes, containers count first, and then sidecars,
// which run beside them (KEP-753).
func namedPort(pod *corev1.Pod, name string, protocol corev1.Protocol) int32 {
	find := func(container *corev1.Container) int32 {
		for _, port := range container.Ports {
			if port.Name == name && port.Protocol == protocol {
				return port.ContainerPort
			}
		}
		return 0
	}
	for i := range pod.Spec.Containers {
		if number := find(&pod.Spec.Containers[i]); number != 0 {
			return number
		}
	}
	for i := range pod.Spec.InitContainers {
		if !isSidecar(&pod.Spec.InitContainers[i]) {
			continue
		}
		if number := find(&pod.Spec.InitContainers[i]); number != 0 {
			return number
		}
	}
	return 0
}

// isSidecar reports whether an init container runs as long as the pod does.
func isSidecar(container *corev1.Container) bool {
	return ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}
