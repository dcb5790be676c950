package endpoints

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on the controller's slices (KEP-752).
const ManagedBy = "dra-network-controller.networking.dra.io"

// maxEndpoints is the maximum number of endpoints in a slice. The value is the Kubernetes default. kube-proxy and other
// clients accept up to 1,000, but smaller slices make changes to a single endpoint cheaper for all watchers.
const maxEndpoints = 100

// Changes are the writes that are needed. All objects are complete.
type Changes struct {
	Create, Update, Delete []discoveryapi.EndpointSlice
}

// Compare returns the changes that turn the existing slices into the desired ones. An endpoint stays in its slice, so
// that adding or removing a pod changes only one slice.
//
// Compare is deterministic: slices are processed in name order and endpoints in address order, and new names are
// numbered, so two replicas with the same input write the same slices. Slices that have lost most of their endpoints
// are not merged, because moving endpoints changes two objects without any benefit to clients.
func Compare(
	service *corev1.Service, wanted map[Group]Endpoints, existing []discoveryapi.EndpointSlice,
) (c Changes, err error) {
	rest, names := map[Group]Endpoints{}, map[string]bool{}
	for group, endpoints := range wanted {
		rest[group] = maps.Clone(endpoints)
	}
	existing = slices.Clone(existing)
	slices.SortFunc(existing, func(a, b discoveryapi.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	kept := make([][]discoveryapi.Endpoint, len(existing))
	groups := make([]Group, len(existing))
	for i := range existing { // keep all remaining endpoints before filling slices, so that none is added twice
		if groups[i], err = groupOf(&existing[i]); err != nil {
			return c, err
		}
		names[existing[i].Name] = true
		kept[i] = keep(&existing[i], rest[groups[i]])
	}
	for i := range existing {
		kept[i] = fill(kept[i], rest[groups[i]])
		switch {
		case len(kept[i]) == 0:
			c.Delete = append(c.Delete, existing[i])
		default:
			if changed := with(service, &existing[i], kept[i]); changed != nil {
				c.Update = append(c.Update, *changed)
			}
		}
	}
	for _, group := range slices.SortedFunc(maps.Keys(rest), func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Ports, b.Ports))
	}) {
		for len(rest[group]) > 0 {
			slice := discoveryapi.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace,
				Name: freeName(service, names)}, AddressType: group.Family}
			if err := json.Unmarshal([]byte(group.Ports), &slice.Ports); err != nil {
				return c, fmt.Errorf("cannot read the ports of Service %s: %w", service.Name, err)
			}
			c.Create = append(c.Create, *with(service, &slice, fill(nil, rest[group])))
		}
	}
	return c, nil
}

// groupOf returns the group that an existing slice belongs to. Ports are compared as text. Missing ports and an empty
// list are normalized here, because the API server does not distinguish between them.
func groupOf(slice *discoveryapi.EndpointSlice) (Group, error) {
	ports := slice.Ports
	if ports == nil {
		ports = []discoveryapi.EndpointPort{}
	}
	text, err := json.Marshal(ports)
	if err != nil {
		return Group{}, fmt.Errorf("cannot read the ports of EndpointSlice %s: %w", slice.Name, err)
	}
	return Group{Family: slice.AddressType, Ports: string(text)}, nil
}

// keep moves the endpoints that are already in a slice from rest to the result. Therefore, an address that is in two
// slices, for example after a conflict, stays in the first one.
func keep(slice *discoveryapi.EndpointSlice, rest Endpoints) []discoveryapi.Endpoint {
	var kept []discoveryapi.Endpoint
	for i := range slice.Endpoints {
		if len(slice.Endpoints[i].Addresses) == 0 {
			continue
		}
		address := slice.Endpoints[i].Addresses[0]
		if endpoint, stays := rest[address]; stays {
			kept = append(kept, endpoint)
			delete(rest, address)
		}
	}
	return kept
}

func fill(endpoints []discoveryapi.Endpoint, rest Endpoints) []discoveryapi.Endpoint {
	for _, address := range slices.Sorted(maps.Keys(rest)) {
		if len(endpoints) >= maxEndpoints {
			break
		}
		endpoints = append(endpoints, rest[address])
		delete(rest, address)
	}
	return endpoints
}

// with returns a slice with the given endpoints, or nil if no change is needed. All labels and owners are replaced,
// because the slice belongs to the controller (KEP-752, managed-by), and the garbage collector removes it together with
// its Service. The headless label makes kube-proxy ignore slices for Services without a cluster IP.
func with(
	service *corev1.Service, old *discoveryapi.EndpointSlice, endpoints []discoveryapi.Endpoint,
) *discoveryapi.EndpointSlice {
	slice := old.DeepCopy()
	slice.Endpoints = endpoints
	slice.Labels = map[string]string{discoveryapi.LabelServiceName: service.Name,
		discoveryapi.LabelManagedBy: ManagedBy}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name,
		UID: service.UID, Controller: ptr.To(true)}}
	if old.ResourceVersion != "" && equality.Semantic.DeepEqual(old, slice) {
		return nil
	}
	return slice
}

// freeName returns a name for an additional slice. Names are numbered rather than random, so that creating a slice that
// already exists but is not in the cache yet causes a conflict.
func freeName(service *corev1.Service, names map[string]bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-dra-network-%d", service.Name, i); !names[name] {
			names[name] = true
			return name
		}
	}
}
