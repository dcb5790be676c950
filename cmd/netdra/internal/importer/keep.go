package importer

import (
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// isKept reports whether the class for a network can keep the network's resource name, so that pods can request the
// resource in the same way as from the device plugin. A name can refer to only one class, so no other network may use
// the resource.
func (m *importer) isKept(n *network) bool {
	if !m.options.KeepResourceNames || n.resource == "" {
		return false
	}
	users := 0
	for _, other := range m.networks {
		if other.resource == n.resource {
			users++
		}
	}
	if users > 1 {
		n.add(true, "metadata.annotations", n.resource, "%d networks use this resource, and the name of a resource "+
			"can refer to only one topology: pods with it get claims, as without --keep-resource-names", users)
	}
	return users <= 1
}

// keepClaims removes the resource name from a topology that requires claim parameters. A pod that requests the resource
// by name has no claim that could set them.
func (n *network) keepClaims(topology *v1alpha1.NetworkTopology) {
	root := &topology.Spec.Steps[0]
	needy := slices.ContainsFunc(topology.Spec.Steps, func(step v1alpha1.Step) bool { return claimspec.NeedsIPs(&step) })
	if root.ExtendedResourceName == "" || !needy {
		return
	}
	root.ExtendedResourceName = ""
	n.add(true, "metadata.annotations", n.resource, "the network configures no addresses, so claims must set them: "+
		"pods with this resource get claims, as without --keep-resource-names")
}

// staysAsItIs reports whether a pod gets all of its networks, with the same interface names, through the resources that
// its containers request. Such a pod cannot set parameters, because it has no claim of its own.
//
// The order of the interfaces matters: Multus numbers them in annotation order, whereas the driver numbers them in the
// order of the requests in the claim that kube-scheduler creates. If the two orders match, net1 remains net1.
func (m *importer) staysAsItIs(w *workload) bool {
	if !m.options.KeepResourceNames {
		return false
	}
	var annotated []string
	for _, s := range w.networks {
		n := m.network(s.namespace, s.name)
		if n == nil || n.topology == nil || s.chooses() || n.needsAnnotation() {
			return false
		}
		annotated = append(annotated, n.resource)
	}
	asked, readable := w.resourcesInOrder(m.resources())
	if !readable || len(asked) == 0 || len(annotated) > 0 && !slices.Equal(asked, annotated) {
		return false
	}
	for _, name := range asked {
		for _, n := range m.networks {
			isOther := len(annotated) == 0 && !n.ofPool // the device plugin assigned only a device, without a network
			if n.resource == name && (n.topology == nil || n.root().ExtendedResourceName == "" || isOther) {
				return false
			}
		}
	}
	return true
}

// explainStay adds a finding that explains how an unchanged pod behaves after the import.
func (w *workload) explainStay() {
	if len(w.networks) == 0 {
		w.add(false, "", nil, "was not changed: its containers get devices by the names of the resources, as before")
		return
	}
	w.add(true, w.path+"metadata.annotations["+annotationNetworks+"]", nil, "was not changed: its containers get the "+
		"networks by the names of the resources, and Multus would attach them a second time: remove Multus from a "+
		"node before you use topologies on it, or remove the annotation")
}

// chooses reports whether the annotation sets any parameters for a network.
func (s *selection) chooses() bool {
	return s.requests.mac != "" || s.requests.interfaceName != "" || len(s.requests.ips) > 0 || s.deviceID != ""
}

// resourcesInOrder returns the resources that containers request, one item per device, in the order in which
// kube-scheduler lists them in the claim that it creates (KEP-5004): by container, and sorted within each container.
// Interfaces are numbered in this order. readable is false if a value cannot be parsed, or if an init container
// requests devices, because later containers may reuse those devices. It is also false if there are more than ten
// containers or resources: requests are sorted by name, so container 10 would precede container 2.
func (w *workload) resourcesInOrder(known []string) (asked []string, readable bool) {
	const inOrder = 10 // maximum number of containers, and of resources per container
	readable = true
	position := 0
	w.eachContainer(func(container map[string]any, path string) {
		position++
		limits := objectAt(objectAt(container, "resources"), "limits")
		for _, name := range known { // sorted
			value, set := limits[name]
			if !set {
				_, requested := objectAt(objectAt(container, "resources"), "requests")[name]
				readable = readable && !requested
				continue
			}
			count, isNumber := devicesOf(value)
			if !isNumber || w.isInit(path) || position > inOrder || len(limits) > inOrder {
				readable = false
				continue
			}
			for range count {
				asked = append(asked, name)
			}
		}
	})
	return asked, readable
}
