package importer

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// part is one network in a composed topology. A pod gets a composed topology if some of its networks use the interfaces
// of others, for example for a bond of two virtual functions.
type part struct {
	*network
	uses    []int           // the earlier parts whose interfaces it uses, in the order of network.links
	ifName  string          // the fixed name of its interface; empty if claims set the name
	request string          // for its own device, or for the device of the first part that it uses
	steps   []v1alpha1.Step // in the composed topology
}

// Parameters for interfaces that the pod's other networks create. The names are a convention among the plugins that
// have them.
const (
	linksParameter = "links"            // objects with a name
	linksInPod     = "linksInContainer" // whether the links are in the pod
)

// interfaceOf returns the template for a step's interface name.
func interfaceOf(step string) string { return "{{ " + step + ".interfaceName }}" }

// onLinks makes a network's first step use the interfaces that its configuration names. Until compose replaces these
// names with steps, the step depends on the names. onLinks returns false and adds a finding if the names are missing or
// unusable.
func (m *importer) onLinks(n *network, f *fields, step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) bool {
	replace := func(object map[string]any, key string) {
		if name, _ := object[key].(string); v1alpha1.CheckClaimInterfaceName(name) == nil {
			n.links, object[key] = append(n.links, name), interfaceOf(name)
		}
	}
	wanted := 1
	if links, isList := f.values[linksParameter].([]any); isList {
		wanted = len(links)
		for _, link := range links {
			object, _ := link.(map[string]any)
			replace(object, "name")
		}
	}
	for _, parameter := range schema.DeviceParameters {
		if parameter.Attribute == byName {
			replace(f.values, parameter.Parameter)
		}
	}
	if wanted == 0 || len(n.links) != wanted {
		n.links = nil
		n.add(true, f.path+"type", step.Type, "does not name the interfaces that it uses, so it was not translated: "+
			"fix its configuration")
		return false
	}
	if !inPod(f) {
		f.values[linksInPod] = true
		for _, link := range n.links {
			host := m.hostLink(n, link)
			if host.topology == nil { // a finding states the reason
				return false
			}
			n.hosts = append(n.hosts, host)
		}
	}
	step.DependOn = n.links
	n.identify(step)
	if name, _ := f.pop(known().NameParameter).(string); name != "" {
		step.IfName, step.ClaimParameters = name, nil
	}
	return true
}

// hostLink returns a network that moves a host link to the pod. The space in the network's name distinguishes it from
// networks that pods can reference.
func (m *importer) hostLink(n *network, link string) *network {
	plugin := map[string]any{"type": known().LinkPlugin, "device": link}
	host := &network{source: n.source, namespace: n.namespace, name: n.name + " " + link, ofLink: true,
		plugins: []*fields{newFields(n.source, "", plugin)}}
	m.networks = append(m.networks, host)
	m.translate(host)
	return host
}

// withHosts appends the parts for a network's host links, if any, and for the network itself. Without host links, the
// network uses earlier parts.
func (n *network) withHosts(parts []part, uses []int) []part {
	for i, host := range n.hosts {
		uses = append(uses, len(parts))
		parts = append(parts, part{network: host, ifName: n.links[i]})
	}
	return append(parts, part{network: n, uses: uses})
}

// composeFor composes a topology for a pod's networks if some of them use the interfaces of others. It returns false
// and adds a finding if this is impossible: Multus could not attach these networks if the driver attached the others.
func (m *importer) composeFor(w *workload) bool {
	position := map[string]int{} // positions of the networks, by interface
	uses, members := map[int][]int{}, map[int]bool{}
	for i, s := range w.networks {
		n := m.network(s.namespace, s.name)
		for j := 0; n != nil && j < len(n.links); j++ {
			members[i] = true
			used, found := position[n.links[j]]
			if n.derived == nil || len(n.hosts) == 0 && (!found || !m.isUsable(w.networks[used])) {
				w.add(true, s.place(), qualified(s.namespace, s.name), "uses the interface %q, which the driver "+
					"would not attach, so the pod was not changed: import the network that makes this interface, "+
					"before this one in the annotation, or write a topology by hand", n.links[j])
				return false
			}
			if len(n.hosts) == 0 {
				uses[i] = append(uses[i], used)
				members[used] = true
			}
		}
		position[s.interfaceName(i)] = i
	}
	var parts []part
	index := map[int]int{} // indexes of the parts, by network position
	for i, s := range w.networks {
		if members[i] {
			for j, used := range uses[i] {
				uses[i][j] = index[used]
			}
			parts = m.network(s.namespace, s.name).withHosts(parts, uses[i])
			index[i] = len(parts) - 1
		}
	}
	if len(parts) == 0 {
		return true
	}
	if w.composed = m.compose(parts); w.composed.topology == nil {
		w.add(true, w.path+"metadata.annotations", nil, "was not changed, since the networks that use interfaces of "+
			"others have no topology")
		return false
	}
	for i, s := range w.networks {
		if members[i] {
			s.part = &parts[index[i]]
		}
	}
	return true
}

// isUsable reports whether the driver attaches a selection's network and creates an interface that other networks can
// use.
func (m *importer) isUsable(s *selection) bool {
	n := m.network(s.namespace, s.name)
	return n != nil && (n.derived != nil || n.topology != nil && !n.isReserved() && !n.needsAnnotation())
}

// compose returns the network whose topology contains all parts. Pods with the same networks share it.
func (m *importer) compose(parts []part) *network {
	last := parts[len(parts)-1]
	topology := m.newTopology(last.network)
	for i := range parts {
		topology.Spec.Steps = parts[i].appendTo(topology.Spec.Steps, parts)
	}
	c := &network{source: last.source, namespace: last.namespace, name: last.name, parts: parts,
		derived: topology.Spec.Steps}
	if i := slices.IndexFunc(m.composed, func(other *network) bool {
		return other.source == c.source && reflect.DeepEqual(other.derived, c.derived)
	}); i >= 0 {
		c = m.composed[i]
	} else {
		m.composed = append(m.composed, c)
		m.finish(c, topology)
	}
	for i := range parts {
		if c.topology != nil {
			parts[i].partOf = c.topology.Name
		}
	}
	return c
}

// appendTo appends the steps of a part. It gives them names that are not yet used in the composed topology.
func (p *part) appendTo(steps []v1alpha1.Step, parts []part) []v1alpha1.Step {
	first := len(steps)
	source := p.derived
	if source == nil {
		source = p.topology.Spec.Steps
	}
	parents, interfaces := map[string]string{}, []string{} // new steps by old name; old and new templates
	for i, j := range p.uses {
		parent := &parts[j]
		parents[p.links[i]] = parent.steps[len(parent.steps)-1].Name
		interfaces = append(interfaces, interfaceOf(p.links[i]), interfaceOf(parent.steps[0].Name))
	}
	for i := range source {
		step := source[i].DeepCopy()
		step.Name = stepName(step.Type, steps)
		step.ExtendedResourceName = "" // a pod that requests the resource gets only one device
		for d, parent := range step.DependOn {
			step.DependOn[d] = parents[parent]
		}
		if step.Config != nil {
			step.Config = &runtime.RawExtension{
				Raw: []byte(strings.NewReplacer(interfaces...).Replace(string(step.Config.Raw)))}
		}
		if i == 0 { // later steps only depend on earlier steps in the part
			parents, interfaces = map[string]string{}, nil
		}
		parents[source[i].Name] = step.Name
		interfaces = append(interfaces, interfaceOf(source[i].Name), interfaceOf(step.Name))
		steps = append(steps, *step)
	}
	if p.ifName != "" {
		steps[first].IfName, steps[first].ClaimParameters = p.ifName, nil
	}
	p.steps, p.request = steps[first:len(steps):len(steps)], steps[first].Name
	if len(p.uses) > 0 {
		p.request = parts[p.uses[0]].request
	}
	return steps
}

// interfaceName returns the name that Multus assigns to the interface for the i-th network in an annotation.
func (s *selection) interfaceName(i int) string {
	if s.requests.interfaceName != "" {
		return s.requests.interfaceName
	}
	return "net" + strconv.Itoa(i+1)
}

// dropParts clears partOf for networks with a topology of their own that a pod also uses separately. It also reports
// networks that only became part of a composed topology, and networks that need the interfaces of other networks if no
// pod in the input has those other networks.
func (m *importer) dropParts() {
	for _, w := range m.workloads {
		for _, s := range w.networks {
			if n := m.network(s.namespace, s.name); n != nil && s.part == nil && n.derived == nil {
				n.partOf = ""
			}
		}
	}
	for _, n := range m.networks {
		switch {
		case n.derived != nil && n.partOf == "":
			n.add(true, n.plugins[0].path+"type", n.plugins[0].text("type"), "needs interfaces of other networks of "+
				"the pod, so it was not translated: import it together with these networks and a pod that names them, "+
				"or write one topology with a root step for each of them, and a step with this plugin that depends on "+
				"them")
		case n.partOf != "" && n.derived == nil && !n.ofLink:
			n.add(false, "", nil, "became a part of topology %s", n.partOf)
		}
	}
}
