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
// of others, for example a bond of two virtual functions.
type part struct {
	*network
	uses    []int           // the earlier parts whose interfaces this part uses, in the order of network.links
	ifName  string          // the fixed name of this part's interface; empty if claims set the name
	request string          // the request for this part's own device, or for the device of the first part that it uses
	steps   []v1alpha1.Step // this part's steps in the composed topology
}

// Parameters for interfaces that are created by the pod's other networks. The plugins that support such interfaces use
// these names by convention.
const (
	linksParameter = "links"            // a list of objects that each have a name
	linksInPod     = "linksInContainer" // reports whether the links are in the pod
)

// interfaceOf returns the template for a step's interface name.
func interfaceOf(step string) string { return "{{ " + step + ".interfaceName }}" }

// onLinks makes the first step of a network use the interfaces named in the network's configuration. Initially, the
// step depends on these names, which compose later replaces with the names of steps. If interface names are missing or
// unusable, onLinks adds a finding and returns false.
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
			if host.topology == nil { // a finding contains the reason
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

// hostLink returns a network that moves a link from the host to the pod. The space in the network's name ensures that
// it cannot clash with networks that pods can reference.
func (m *importer) hostLink(n *network, link string) *network {
	plugin := map[string]any{"type": known().LinkPlugin, "device": link}
	host := &network{source: n.source, namespace: n.namespace, name: n.name + " " + link, ofLink: true,
		plugins: []*fields{newFields(n.source, "", plugin)}}
	m.networks = append(m.networks, host)
	m.translate(host)
	return host
}

// withHosts appends parts for a network's host links, if any, and a part for the network itself. If the network has no
// host links, it uses earlier parts.
func (n *network) withHosts(parts []part, uses []int) []part {
	for i, host := range n.hosts {
		uses = append(uses, len(parts))
		parts = append(parts, part{network: host, ifName: n.links[i]})
	}
	return append(parts, part{network: n, uses: uses})
}

// composeFor composes a topology for those networks of a pod that use each other's interfaces. If this is impossible,
// it adds a finding and returns false, and the pod must stay unchanged: Multus could not attach these networks if the
// driver attached the others.
func (m *importer) composeFor(w *workload) bool {
	position := map[string]int{} // maps interface names to the positions of networks
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
	index := map[int]int{} // maps the positions of networks to the indexes of parts
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

// isUsable reports whether the driver attaches the selected network and creates an interface that other networks can
// use.
func (m *importer) isUsable(s *selection) bool {
	n := m.network(s.namespace, s.name)
	return n != nil && (n.derived != nil || n.topology != nil && !n.isReserved() && !n.needsAnnotation())
}

// compose returns the network whose topology contains all parts. Pods with the same networks share the result.
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

// appendTo appends the steps of a part to the steps of the composed topology. It gives them names that are not in use
// yet.
func (p *part) appendTo(steps []v1alpha1.Step, parts []part) []v1alpha1.Step {
	first := len(steps)
	source := p.derived
	if source == nil {
		source = p.topology.Spec.Steps
	}
	parents, interfaces := map[string]string{}, []string{} // new step names by old name; pairs of old and new templates
	for i, j := range p.uses {
		parent := &parts[j]
		parents[p.links[i]] = parent.steps[len(parent.steps)-1].Name
		interfaces = append(interfaces, interfaceOf(p.links[i]), interfaceOf(parent.steps[0].Name))
	}
	for i := range source {
		step := source[i].DeepCopy()
		step.Name = stepName(step.Type, steps)
		step.ExtendedResourceName = "" // a pod that requests the resource would get only one device
		for d, parent := range step.DependOn {
			step.DependOn[d] = parents[parent]
		}
		if step.Config != nil {
			step.Config = &runtime.RawExtension{
				Raw: []byte(strings.NewReplacer(interfaces...).Replace(string(step.Config.Raw)))}
		}
		if i == 0 { // later steps depend only on earlier steps in the same part
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

// interfaceName returns the name that Multus assigns to the interface of the i-th network in an annotation.
func (s *selection) interfaceName(i int) string {
	if s.requests.interfaceName != "" {
		return s.requests.interfaceName
	}
	return "net" + strconv.Itoa(i+1)
}

// dropParts clears partOf for each network that has its own topology and that a pod uses separately. It also reports
// networks that have only become part of a composed topology, and networks that need the interfaces of other networks
// although no pod in the input has those.
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
