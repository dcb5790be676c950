package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Options contains settings that are not in the input.
type Options struct {
	// Namespace is the namespace for objects that do not specify one.
	Namespace string
	// DevicePluginPrefix is the prefix of resources in the device plugin's configuration, and OperatorPrefix is the
	// prefix of resources created by the operator. If OperatorPrefix is empty, it is derived from the input; see
	// operatorPrefix.
	DevicePluginPrefix, OperatorPrefix string
	// KeepResourceNames makes the classes of topologies use the device plugin's resource names. Pods for which these
	// names are sufficient stay unchanged.
	KeepResourceNames bool
	// KeepMultus creates topologies that only reserve the devices, while Multus continues to attach them.
	KeepMultus bool
	// Schemas are the schemas of the CNI plugins.
	Schemas cnichain.Schemas
}

// Result is the result of a translation.
type Result struct {
	// Objects are policies, topologies, claim templates and modified pods, in the order in which they must be applied.
	Objects []any `json:"objects"`
	// Findings describe the parts of the input that the objects do not reflect, in input order.
	Findings []Finding `json:"findings"`
}

// importer performs one translation: it reads the input and then creates the output. It can be used only once and is
// not safe for concurrent use.
type importer struct {
	options     Options
	pools       []*pool
	networks    []*network
	composed    []*network // composed of several networks
	workloads   []*workload
	templates   []*resourceapi.ResourceClaimTemplate
	names       map[string]bool             // the created objects, as "KIND NAME"
	nicPolicies map[string]bool             // the policies of the NVIDIA network operator in the input, as "KIND NAME"
	suffixes    map[string]string           // the users of device name suffixes
	schemas     []*v1alpha1.CNIPluginSchema // schemas that topologies need in addition to the built-in ones
}

// Import translates documents. It returns an error only if documents cannot be read; all other problems become
// findings. The output depends only on the input: maps are always processed in sorted order, so that the results of two
// runs can be compared.
func Import(documents []manifest.Document, options Options) (*Result, error) {
	result := &Result{Objects: []any{}, Findings: []Finding{}}
	objects, err := newObjects(documents, &result.Findings)
	if err != nil {
		return nil, err
	}
	m := &importer{options: options, names: map[string]bool{}, nicPolicies: map[string]bool{}}
	for _, o := range objects {
		if o.namespace == "" {
			o.namespace = options.Namespace
		}
	}
	m.options.OperatorPrefix = cmp.Or(options.OperatorPrefix, operatorPrefix(objects))
	// Objects from which operators create other objects are read before these. Pools and networks are read before pods
	// and other networks, which refer to them.
	for _, read := range []map[string]func(*object){
		{kindNICClusterPolicy: m.readNICPolicy, kindNICNodePolicy: m.readNICPolicy},
		m.pooling(), {kindNetwork: m.readNetwork}} {
		for _, o := range objects {
			if do := read[o.kind]; do != nil {
				o.isRead = true
				do(o)
			}
		}
	}
	for _, o := range objects {
		if !o.isRead && !m.readPods(o) {
			m.skip(o, "objects of this kind are not translated")
		}
	}
	if len(m.pools)+len(m.networks)+len(m.workloads) == 0 && len(result.Findings) == 0 {
		return nil, errors.New("cannot import: the input contains nothing to translate; pass files with " +
			"NetworkAttachmentDefinitions, the ConfigMap of the SR-IOV device plugin, objects of the SR-IOV operator " +
			"or the NVIDIA network operator, or pods")
	}
	err = m.make(result)
	for _, o := range objects {
		o.close()
	}
	slices.SortStableFunc(result.Findings, func(a, b Finding) int { return a.order - b.order })
	return result, err
}

// pooling returns the functions that read the objects that define pools and the operator's networks.
func (m *importer) pooling() map[string]func(*object) {
	readers := map[string]func(*object){kindConfigMap: m.readConfigMap, kindNodePolicy: m.readNodePolicy}
	for kind := range known().Networks {
		readers[kind] = m.readOperatorNetwork
	}
	return readers
}

// skip reports an object that is not translated. No action is required for unrelated kinds that are often in the same
// file.
func (m *importer) skip(o *object, reason string) {
	o.forget()
	unrelated := []string{"Namespace", kindConfigMap, "Service", "Secret", "ServiceAccount"}
	o.add(!slices.Contains(unrelated, o.kind), "", nil, "%s", reason)
}

// make creates all objects from the input.
//
// The objects are in the order required by kubectl apply: policies and topologies come before the templates and pods
// that depend on them.
func (m *importer) make(result *Result) error {
	m.separateUses()
	for _, n := range m.networks {
		m.translate(n)
	}
	m.ownNetworks()
	for _, n := range m.networks {
		if n.derived != nil && len(n.hosts) > 0 {
			m.compose(n.withHosts(nil, nil)) // does not need the pod's other networks
		}
		for _, p := range n.pools {
			if n.topology != nil {
				p.plugins = append(p.plugins, n.root().Type)
			}
		}
	}
	changed := m.changeWorkloads()
	m.dropParts()
	networks := slices.DeleteFunc(slices.Concat(m.networks, m.composed), func(n *network) bool {
		return n.topology == nil || n.partOf != ""
	})
	for _, n := range networks {
		m.explainNamespaces(n)
	}
	for _, schema := range m.schemas {
		result.Objects = append(result.Objects, schema)
	}
	for _, policy := range slices.Concat(m.poolPolicies(), m.linkPolicies()) {
		result.Objects = append(result.Objects, policy)
	}
	for _, n := range networks {
		result.Objects = append(result.Objects, n.topology)
		m.templatesOf(n)
	}
	slices.SortStableFunc(m.templates, func(a, b *resourceapi.ResourceClaimTemplate) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, t := range m.templates {
		result.Objects = append(result.Objects, t)
	}
	result.Objects = append(result.Objects, changed...)
	for i, object := range result.Objects {
		values, err := tidy(object)
		if err != nil {
			return fmt.Errorf("cannot encode the result: %w", err)
		}
		result.Objects[i] = values
	}
	return nil
}

// changeWorkloads replaces networks and resources in pods with claims, and returns the objects that it has changed.
func (m *importer) changeWorkloads() (changed []any) {
	var last, checked *source
	for _, w := range m.workloads {
		switch {
		case m.isOnHost(w): // adds a finding
		case m.staysAsItIs(w):
			w.explainStay()
		case m.isUnclear(w) || !m.composeFor(w): // both calls add a finding
		case m.change(w):
			if last != w.source { // an object may contain several pods
				changed = append(changed, w.document)
				if w.lacksNamespace() {
					w.add(true, "metadata.namespace", nil, "is not set, so the ResourceClaimTemplates are in "+
						"namespace %s: if the pods are in other namespaces, create them there, and add these "+
						"namespaces to allowedNamespaces", w.namespace)
				}
			}
			if checked != w.source {
				m.explainOutside(w)
			}
			last, checked = w.source, w.source
			if w.isTemplate {
				w.add(false, w.place(), nil, "if kubectl apply reports the unknown field resourceClaims, the "+
					"CustomResourceDefinition of this kind is too old: update it")
			}
		default:
			w.add(false, w.place(), nil, "was not changed: it uses none of the translated networks and resources")
			if checked != w.source {
				m.explainOutside(w)
			}
			checked = w.source
		}
	}
	return changed
}

// templatesOf creates a network's claim template in the network's namespace, unless every claim must set addresses. For
// a pool's own network or a composed network, it creates a template only if no pod uses the network, because the
// template for such a pod already exists.
func (m *importer) templatesOf(n *network) {
	if slices.ContainsFunc(n.topology.Spec.Steps, func(s v1alpha1.Step) bool { return claimspec.NeedsIPs(&s) }) {
		return // a claim without addresses would be rejected
	}
	class := template(n, "", "").Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName
	isUsed := slices.ContainsFunc(m.templates, func(t *resourceapi.ResourceClaimTemplate) bool {
		return t.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName == class
	})
	if isUsed && (n.namespace == "" || len(n.parts) > 0) {
		return
	}
	m.plainTemplate(n, cmp.Or(n.namespace, m.options.Namespace))
}

// ownNetworks creates topologies for pools that no network uses. Device plugins do not require a network. As before,
// pods that use such a pool get only the virtual function, or the files of a shared device.
func (m *importer) ownNetworks() {
	for _, p := range m.pools {
		if slices.ContainsFunc(m.networks, func(n *network) bool { return n.resource == p.resource }) {
			continue
		}
		_, name, _ := strings.Cut(p.resource, "/")
		n := &network{source: p.source, name: name, resource: p.resource, ofPool: true}
		plugin := known().FunctionPlugin
		if p.subfunctions {
			plugin = known().LinkPlugin
		}
		if p.shared {
			plugin = known().FilePlugin
			p.add(false, "", p.resource, "containers also get the files for management datagrams (umadN, "+
				"issmN), as from the device plugin: remove managementDevices from the topology if they do not need "+
				"these files")
		}
		n.plugins = []*fields{newFields(p.source, "", map[string]any{"type": plugin})}
		m.networks = append(m.networks, n)
		m.translate(n)
		p.add(false, "", p.resource, "no network uses this resource: its topology attaches devices with %s and "+
			"without addresses", plugin)
	}
}

// explainNamespaces reports in which namespaces claims may use a network's topology.
func (m *importer) explainNamespaces(n *network) {
	if users := m.users(n); len(users) > 0 {
		n.add(false, "metadata.namespace", nil, "claims in namespace %s may use topology %s; add other namespaces to "+
			"allowedNamespaces; without namespaceIsolation, Multus allows all namespaces", strings.Join(users, ", "),
			n.topology.Name)
	}
}

// problemsOf returns the errors that the API server, the controller or the webhook would report for a topology. Invalid
// topologies are not written, because users would otherwise learn about the errors only from the API server.
func (m *importer) problemsOf(topology *v1alpha1.NetworkTopology) []string {
	var problems []string
	for _, problem := range cnichain.Validate(topology, m.options.Schemas) {
		problems = append(problems, problem.Error())
	}
	for i := range topology.Spec.Steps {
		if selector := topology.Spec.Steps[i].Selector; selector != nil {
			if err := policy.CheckClassSelector(selector.CEL); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	return problems
}

// unique returns an unused name for an object of the given kind. kind may include a namespace, so that a template name
// can be reused in other namespaces.
func (m *importer) unique(kind string, parts ...string) string {
	name := unused(cmp.Or(objectName(parts...), "unnamed"), func(name string) bool { return m.names[kind+" "+name] })
	m.names[kind+" "+name] = true
	return name
}

// unused returns a name that is not taken: base, or base followed by a number.
func unused(base string, isTaken func(name string) bool) string {
	name := base
	for i := 2; isTaken(name); i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	return name
}

// YAML returns the objects as YAML documents.
func (r *Result) YAML() ([]byte, error) {
	var all []byte
	for i, object := range r.Objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all = append(all, "---\n"...)
		}
		all = append(all, data...)
	}
	return all, nil
}

// tidy returns an object without unset fields. The Go types would encode an empty status and, in templates, empty
// metadata.
func tidy(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, err
	}
	if isEmpty(values["status"]) || isEmpty(objectAt(values, "status")["conditions"]) {
		delete(values, "status")
	}
	if spec := objectAt(values, "spec"); isEmpty(spec["metadata"]) {
		delete(spec, "metadata")
	}
	return values, nil
}
