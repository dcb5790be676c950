package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// change replaces the networks in a pod's annotation and the device plugin resources in its containers with claims. It
// returns false if there is nothing to replace.
//
// For each network in the annotation, there are three cases. If the network has no topology, it stays in the
// annotation. If the network's devices are reserved for Multus, it also stays, and the pod gets a claim for the device.
// Otherwise, a claim replaces the network. For a network with a resource, the claim accounts for one of the devices
// requested by the containers. Devices that remain in asked at the end have no network.
func (m *importer) change(w *workload) bool {
	asked := w.takeResources(m.resources())
	var kept []map[string]any
	changed := len(asked) > 0
	// Multus numbers interfaces by their position in the annotation, including interfaces with explicit names. The
	// driver numbers the interfaces of claims in the same way. Both assign the same names up to the first network that
	// has an explicit name or stays with Multus.
	sameNumbers := true
	var members []*selection // the networks that are parts of the composed network
	for i, s := range w.networks {
		sameNumbers = m.keepName(i, s, len(kept), sameNumbers)
		n := m.network(s.namespace, s.name)
		if s.part != nil {
			members = append(members, s)
			continue
		}
		if n == nil || n.topology == nil {
			isMeant := m.options.KeepMultus && n != nil && n.resource == ""
			w.add(!isMeant, s.place(), qualified(s.namespace, s.name),
				"the network has no topology, so it stays in the pod's annotation for Multus")
			kept = append(kept, s.values)
			w.keepsResource(s, n, asked)
			continue
		}
		changed = true
		if n.isReserved() {
			kept = append(kept, s.values)
			s.requests = podRequests{} // Multus applies the parameters in the annotation
		} else if n.needsAnnotation() {
			w.add(true, s.place(), qualified(s.namespace, s.name), "stays in the pod's annotation, because a "+
				"controller other than Multus reads it: make sure that no Multus on the nodes attaches the network, too")
			kept = append(kept, s.values)
		}
		w.addClaim(n, m.templateFor(w, []*selection{s}, n), asked)
	}
	if len(members) > 0 {
		changed = true
		w.addClaim(w.composed, m.templateFor(w, members, w.composed), asked)
	}
	for _, s := range w.networks {
		n := m.network(s.namespace, s.name)
		if n != nil && (n.topology != nil || n.derived != nil) && asked[n.requested] != nil {
			asked[n.requested].count--
		}
	}
	for _, name := range sortedKeys(asked) {
		m.giveRest(w, name, asked[name])
	}
	if changed {
		w.setNetworks(kept)
		w.clean()
		w.explainVariables()
	}
	return changed
}

// explainVariables adds a finding for each container that reads the environment variables of a device plugin, because
// the driver does not set them.
func (w *workload) explainVariables() {
	w.eachContainer(func(container map[string]any, path string) {
		text, err := json.Marshal([]any{container["command"], container["args"], container["env"]})
		if err == nil && strings.Contains(string(text), "PCIDEVICE_") {
			w.add(true, path, container["name"], "it reads variables of the device plugin (PCIDEVICE_…), which it no longer "+
				"gets: read the PCI address from the claim's metadata file")
		}
	})
}

// explainOutside adds a finding for each use of a translated resource, and for each annotation with networks, in the
// parts of a workload's document that are not pods.
func (m *importer) explainOutside(w *workload) {
	resources := m.resources()
	document := map[string]any{"metadata": w.document["metadata"], "spec": w.document["spec"]}
	eachObject(document, nil, func(keys []any, object map[string]any) bool {
		if isPod(object) {
			return false
		}
		if value := object[annotationNetworks]; value != nil {
			w.add(true, joined(keys)+"["+annotationNetworks+"]", value, "is not in a pod template, so it was "+
				"not changed: replace its networks that have topologies with claims by hand")
		}
		for _, name := range resources {
			if value := object[name]; value != nil {
				w.add(true, joined(keys)+"["+name+"]", value, "is not in a pod template, and claims replace this "+
					"resource in pods: remove it, or controllers may wait for a resource that no node has")
			}
		}
		return true
	})
}

// isUnclear reports whether it is unclear which network needs a requested device, because the annotation references a
// network that is not in the input. In that case, it also adds a finding. Without the device, Multus could not attach
// that network.
func (m *importer) isUnclear(w *workload) bool {
	for _, s := range w.networks {
		if m.network(s.namespace, s.name) != nil {
			continue
		}
		if asked, _ := w.resourcesInOrder(m.resources()); len(asked) > 0 {
			w.add(true, s.place(), qualified(s.namespace, s.name), "is not in the input and may need a device of %s "+
				"that the containers request, so the pod was not changed: import the network together with the pod",
				asked[0])
			return true
		}
	}
	return false
}

// isOnHost reports whether a pod with the node's network uses networks, or resources that have a topology. In that
// case, it also adds a finding, because the driver rejects the claims of such a pod. Multus ignores the networks.
func (m *importer) isOnHost(w *workload) bool {
	asked, readable := w.resourcesInOrder(m.resources())
	if objectAt(w.pod, "spec")["hostNetwork"] != true || len(asked)+len(w.networks) == 0 && readable {
		return false
	}
	w.add(true, w.path+"spec.hostNetwork", true, "the pod was not changed, since the driver does not attach "+
		"devices to pods with the network of the node: remove hostNetwork and import it again, or keep the device "+
		"plugin for this pod")
	return true
}

// keepName preserves the name that Multus assigned to the interface of the i-th network in an annotation. The name
// becomes a parameter of the claim. If the network stays in the annotation at a different position, the name becomes a
// field there instead. sameNumbers is true if the driver and Multus assign the same numbers up to this network.
// keepName returns whether this will also be true for the next network.
func (m *importer) keepName(i int, s *selection, before int, sameNumbers bool) bool {
	if s.requests.interfaceName != "" {
		return false
	}
	name := s.interfaceName(i)
	if before != i {
		s.values = maps.Clone(s.values)
		s.values["interface"] = name
	}
	n := m.network(s.namespace, s.name)
	if s.part == nil && (n == nil || n.topology == nil || n.isReserved() || n.needsAnnotation()) {
		return false
	}
	if steps, _ := s.target(n); stepThatTakes(steps, v1alpha1.ClaimInterfaceName) == "" {
		return false // there is no interface, or its name is fixed
	}
	sameNumbers = sameNumbers && s.part == nil // the driver numbers interfaces in a topology in a different order
	if !sameNumbers {
		s.requests.interfaceName = name
	}
	return sameNumbers
}

// target returns the steps for a selected network, and the name of the claim request that the parameters for these
// steps apply to.
func (s *selection) target(n *network) (steps []v1alpha1.Step, name string) {
	if s.part != nil {
		return s.part.steps, s.part.request
	}
	return n.topology.Spec.Steps, request
}

// keepsResource adds a finding if a network that stays with Multus needs a device from a resource that has been
// removed. takeResources removes the resource from all containers, because it cannot determine for which network a
// device is requested.
func (w *workload) keepsResource(s *selection, n *network, asked map[string]*need) {
	if n == nil || asked[n.requested] == nil {
		return
	}
	asked[n.requested].count--
	w.add(true, s.place(), n.requested, "the resource was removed from the limits of the containers, since other "+
		"networks of the pod with this resource have claims now: add it again for this network")
}

// need contains the number of devices that the containers of a pod request from a resource, and the names of these
// containers.
type need struct {
	count      int64
	containers []string
	// passing is the maximum number of devices in use while running an init container that terminates before the other
	// containers start.
	passing int64
}

// add adds the request of a container. Init containers must be added first, in order. As in the kubelet, later
// containers reuse the devices of init containers that terminate.
func (n *need) add(container map[string]any, isInit bool, count int64) {
	name, _ := container["name"].(string)
	n.containers = append(n.containers, name)
	if ends := isInit && container["restartPolicy"] != "Always"; ends {
		n.passing = max(n.passing, n.count+count)
		return
	}
	n.count += count
}

// giveRest creates claims for requested devices without a network in the annotation. The claims use the pool's own
// topology because, like the device plugin, it provides a device without a network.
func (m *importer) giveRest(w *workload, name string, left *need) {
	if left.count <= 0 {
		return
	}
	n := m.ownNetworkOf(name)
	if n == nil || n.topology == nil {
		w.add(true, w.path+"spec.containers", name, "the containers request %d more devices than the annotation has "+
			"networks with this resource, and these networks have no topology: add one of its ResourceClaimTemplates "+
			"to spec.resourceClaims",
			left.count)
		return
	}
	if slices.ContainsFunc(n.pools, func(p *pool) bool { return p.shared }) {
		left.count = 1 // each further device would have given the same files
	}
	for range left.count {
		w.addClaim(n, m.plainTemplate(n, w.namespace), map[string]*need{name: left})
	}
}

// templateFor returns the name of the claim template for a pod's network, or for the networks that form a composed
// network. If the pod sets parameters, the template is a separate one; otherwise, it is the network's template. A
// parameter that cannot be translated becomes a finding, and the pod gets the network without the parameter.
func (m *importer) templateFor(w *workload, selections []*selection, n *network) string {
	t := template(n, w.namespace, "")
	chosen := false
	for _, s := range selections {
		path, wanted := s.place(), s.requests
		steps, name := s.target(n)
		if wanted.interfaceName == steps[0].IfName {
			wanted.interfaceName = ""
		}
		ips, err := withPrefixes(wanted.ips, steps)
		if err != nil {
			w.add(true, path+".ips", wanted.ips, "the addresses were left out: %v", err)
		}
		wanted.ips = ips
		parameters, refused := wanted.parameters(steps)
		for _, parameter := range refused {
			w.add(true, path, nil, "the topology %s does not let claims set %s, so it was left out: the pod gets the "+
				"value of the topology", n.topology.Name, parameter)
		}
		if err := choose(t, name, parameters); err != nil {
			w.add(true, path, nil, "the parameters of the pod were left out: %v", err)
		}
		schema, hasSchema := m.options.Schemas.Lookup(steps[0].Type)
		isPicked := s.deviceID != "" && (!hasSchema || takesFunctions(&schema))
		if isPicked {
			pick(t, name, s.deviceID)
		} else if s.deviceID != "" {
			w.add(true, path+".deviceID", s.deviceID, "%s ignores the PCI address of a device, with Multus as well, "+
				"so it was left out", steps[0].Type)
		}
		chosen = chosen || isPicked || len(parameters) > 0
	}
	if !chosen {
		return m.plainTemplate(n, w.namespace)
	}
	t.Name = m.unique("template "+w.namespace, w.name, n.topology.Name)
	m.templates = append(m.templates, t)
	return t.Name
}

// plainTemplate returns the name of a network's claim template in a namespace, and creates the template if necessary.
// The default name may already be in use for a template that was created for a single pod.
func (m *importer) plainTemplate(n *network, namespace string) string {
	if name, made := n.templates[namespace]; made {
		return name
	}
	name := m.unique("template "+namespace, n.topology.Name)
	m.templates = append(m.templates, template(n, namespace, name))
	n.templates = setIn(n.templates, namespace, name)
	return name
}

// addClaim adds a claim to the pod and to all of its containers, so that no container starts without the interface. If
// the claim also provides device files, it is added only to containers that requested the resource. A claim's gate is a
// CDI device, so it blocks only containers that reference the claim (docs/adr/0001-fail-closed-with-cdi.md).
func (w *workload) addClaim(n *network, templateName string, asked map[string]*need) {
	spec := objectAt(w.pod, "spec")
	claims, _ := spec["resourceClaims"].([]any)
	name := claimName(n.topology.Name, claims)
	spec["resourceClaims"] = append(claims, map[string]any{"name": name, "resourceClaimTemplateName": templateName})
	givesFiles := slices.ContainsFunc(n.topology.Spec.Steps, func(step v1alpha1.Step) bool {
		return step.RDMA != nil || step.Driver != "" || len(step.DeviceNodes) > 0
	})
	var users []string // containers that request the network's resources
	for _, resource := range n.resources() {
		if asked[resource] != nil {
			users = append(users, asked[resource].containers...)
		}
	}
	w.eachContainer(func(container map[string]any, _ string) {
		containerName, _ := container["name"].(string)
		if givesFiles && len(users) > 0 && !slices.Contains(users, containerName) {
			return
		}
		resources := objectAt(container, "resources")
		if resources == nil {
			resources = map[string]any{}
			container["resources"] = resources
		}
		list, _ := resources["claims"].([]any)
		resources["claims"] = append(list, map[string]any{"name": name})
	})
}

// claimName returns a name that is not used by any other claim in the pod.
func claimName(base string, claims []any) string {
	return unused(base, func(name string) bool {
		return slices.ContainsFunc(claims, func(c any) bool {
			claim, _ := c.(map[string]any)
			return claim["name"] == name
		})
	})
}

// eachContainer calls do for all containers in the kubelet's start order, beginning with init containers. path is the
// path of the container in the manifest.
func (w *workload) eachContainer(do func(container map[string]any, path string)) {
	for _, key := range []string{"initContainers", "containers"} {
		list, _ := objectAt(w.pod, "spec")[key].([]any)
		for i, item := range list {
			if container, isObject := item.(map[string]any); isObject {
				do(container, fmt.Sprintf("%sspec.%s[%d]", w.path, key, i))
			}
		}
	}
}

// takeResources removes device plugin resources from the containers and returns the requested devices. If both a
// request and a limit are set for an extended resource, Kubernetes requires them to be equal, so only one of them is
// counted.
func (w *workload) takeResources(known []string) map[string]*need {
	asked := map[string]*need{}
	w.eachContainer(func(container map[string]any, path string) {
		resources := objectAt(container, "resources")
		for _, resourceName := range known {
			count := int64(0)
			for _, key := range []string{"requests", "limits"} {
				amounts := objectAt(resources, key)
				value, set := amounts[resourceName]
				if !set {
					continue
				}
				delete(amounts, resourceName)
				if len(amounts) == 0 {
					delete(resources, key)
				}
				amount, readable := devicesOf(value)
				if !readable {
					w.add(true, path+".resources."+key+"."+resourceName, value, "is not a number of devices up to "+
						"%d, and counts as 0", maxDevices)
					continue
				}
				count = amount
			}
			if count > 0 {
				if asked[resourceName] == nil {
					asked[resourceName] = &need{}
				}
				asked[resourceName].add(container, w.isInit(path), count)
			}
		}
	})
	for _, n := range asked {
		n.count = max(n.count, n.passing)
	}
	return asked
}

// isInit reports whether the container at a path is an init container.
func (w *workload) isInit(path string) bool {
	return strings.HasPrefix(path, w.path+"spec.initContainers")
}

// devicesOf parses the number of devices requested by a container, which Kubernetes requires to be an integer. It does
// not parse quantities: "1e30" is not a usable integer, and a malicious quantity can take arbitrarily long to parse.
func devicesOf(value any) (count int64, readable bool) {
	count, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	return count, err == nil && count >= 0 && count <= maxDevices
}

// maxDevices is the maximum number of devices that a container may request. It is the same as the limit for a claim.
const maxDevices = 32

// setNetworks writes the networks that stay in the annotation. It uses JSON even if the original was in the short form,
// because elements may have fields that the short form does not support.
func (w *workload) setNetworks(kept []map[string]any) {
	annotations := objectAt(objectAt(w.pod, "metadata"), "annotations")
	delete(annotations, annotationNetworks)
	if len(kept) > 0 {
		text, err := json.Marshal(kept)
		if err == nil {
			annotations[annotationNetworks] = string(text)
		}
	}
	if len(annotations) == 0 {
		delete(objectAt(w.pod, "metadata"), "annotations")
	}
}

// clean removes the fields set by the cluster, so that the object can be created again. nodeName is only set in pods
// that were read from a cluster; it would bypass the scheduler and therefore claim allocation.
func (w *workload) clean() {
	delete(w.document, "status")
	for _, metadata := range []map[string]any{objectAt(w.document, "metadata"), objectAt(w.pod, "metadata")} {
		for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
			"selfLink"} {
			delete(metadata, key)
		}
		annotations := objectAt(metadata, "annotations")
		for _, key := range []string{annotationNetworks + "-status", "k8s.v1.cni.cncf.io/network-status",
			"kubectl.kubernetes.io/last-applied-configuration"} {
			delete(annotations, key)
		}
		if annotations != nil && len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if !w.lacksNamespace() {
		objectAt(w.document, "metadata")["namespace"] = w.namespace
	}
	if spec := objectAt(w.pod, "spec"); spec["nodeName"] != nil {
		w.add(false, w.path+"spec.nodeName", spec["nodeName"], "was left out: the scheduler chooses a node that has "+
			"the devices")
		delete(spec, "nodeName")
	}
}

// lacksNamespace reports whether an object of a kind that is not built into Kubernetes has no namespace. The kind may
// be cluster-scoped.
func (w *workload) lacksNamespace() bool {
	return w.isTemplate && isEmpty(objectAt(w.document, "metadata")["namespace"])
}

// resources returns the sorted names of all resources that have a topology. Pods continue to request all other
// resources.
func (m *importer) resources() []string {
	names := map[string]bool{}
	for _, n := range m.networks {
		if n.topology != nil || n.derived != nil {
			names[n.requested] = true
		}
	}
	delete(names, "")
	return sortedKeys(names)
}

// resources returns the resources that pods request together with a network.
func (n *network) resources() []string {
	names := []string{n.requested}
	for i := range n.parts {
		names = append(names, n.parts[i].requested)
	}
	return names
}

// ownNetworkOf returns the network that was created for a pool if no network in the input uses the pool; otherwise nil.
func (m *importer) ownNetworkOf(resourceName string) *network {
	for _, n := range m.networks {
		if n.resource == resourceName && n.ofPool {
			return n
		}
	}
	return nil
}

// users returns the namespaces in which pods use a network: the network's own namespace, and the namespaces of pods in
// the input that use it. The network's topology may be used only in these namespaces.
func (m *importer) users(n *network) []string {
	names := map[string]bool{}
	if n.namespace != "" {
		names[n.namespace] = true
	}
	for _, w := range m.workloads {
		for _, s := range w.networks {
			if s.namespace == n.namespace && s.name == n.name {
				names[w.namespace] = true
			}
		}
	}
	return sortedKeys(names)
}

// needsAnnotation reports whether a controller other than Multus reads the pods' annotations for this network.
func (n *network) needsAnnotation() bool {
	var config struct {
		IPAM struct{ Type string }
		IB   bool `json:"ibKubernetesEnabled"`
	}
	root := n.root()
	if root.Config != nil {
		_ = json.Unmarshal(root.Config.Raw, &config) // in a template, fields may have other types
	}
	plugins := known().AnnotationPlugins
	return config.IB || slices.Contains(plugins, root.Type) || slices.Contains(plugins, config.IPAM.Type)
}

// root returns the network's root step.
func (n *network) root() *v1alpha1.Step { return &n.topology.Spec.Steps[0] }
