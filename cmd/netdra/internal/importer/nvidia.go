package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// readNICPolicy reads a NicClusterPolicy or NicNodePolicy, with which the NVIDIA network operator configures the SR-IOV
// device plugin and the RDMA shared device plugin.
func (m *importer) readNICPolicy(o *object) {
	if o.kind == kindNICClusterPolicy && o.name != known().NICClusterPolicy {
		o.forget()
		o.add(false, "", nil, "was skipped: the operator ignores it, because its name is not %s",
			known().NICClusterPolicy)
		return
	}
	o.readMetadata()
	m.nicPolicies[o.kind+" "+o.name] = true
	spec := o.child("spec")
	nodes := maps.Clone(known().NICLabels)
	selector := spec.child("nodeSelector")
	for _, key := range sortedKeys(selector.values) {
		nodes[key] = selector.text(key)
	}
	requirements, terms := spec.child("nodeAffinity").nodeRequirements(selector.restricts(nil))
	var pools []*pool
	for _, key := range []string{"sriovDevicePlugin", "rdmaSharedDevicePlugin"} {
		plugin := spec.child(key)
		plugin.ignore("image", "repository", "version", "imagePullSecrets", "containerResources", "useCdi")
		if config := plugin.inside("config"); config != nil {
			pools = append(pools, m.readPlugin(config)...)
		}
	}
	spec.without(kindNICClusterPolicy)
	spec.ignore("labels", "annotations", "deploymentNodeAffinity", "deploymentTolerations") // of the operator's pods
	if spec.mistyped {
		terms = spec.nothing(terms)
	}
	for _, p := range pools {
		p.nodes, p.nodeRequirements, p.terms = nodes, requirements, append(p.terms, terms...)
	}
	if len(pools) > 0 {
		o.add(false, "spec", nil, "the policies select only nodes with the labels %s, as the operator does: remove "+
			"them from nodeSelector if Node Feature Discovery or the operator is not kept",
			strings.Join(sortedKeys(known().NICLabels), " and "))
	}
}

// isCreatedByNICPolicy reports whether the operator creates an object from a policy in the input.
func (m *importer) isCreatedByNICPolicy(o *object) bool {
	owners, _ := objectAt(o.values, "metadata")["ownerReferences"].([]any)
	return slices.ContainsFunc(owners, func(owner any) bool {
		reference, _ := owner.(map[string]any)
		return m.nicPolicies[fmt.Sprintf("%v %v", reference["kind"], reference["name"])]
	})
}

// nodeRequirements returns the labels that a node affinity requires. It ignores preferences, because the pods of a
// DaemonSet run on all other nodes, too. If it cannot translate the affinity, it adds the term never to terms.
func (f *fields) nodeRequirements(terms []string) ([]metav1.LabelSelectorRequirement, []string) {
	var all []metav1.LabelSelectorRequirement
	f.ignore("preferredDuringSchedulingIgnoredDuringExecution")
	required := f.child("requiredDuringSchedulingIgnoredDuringExecution")
	alternatives := required.list("nodeSelectorTerms")
	for _, alternative := range alternatives {
		for _, expression := range alternative.list("matchExpressions") {
			operator := metav1.LabelSelectorOperator(expression.text("operator"))
			all = append(all, metav1.LabelSelectorRequirement{Key: expression.text("key"), Operator: operator,
				Values: expression.texts("values")})
			terms = expression.restricts(terms)
		}
		terms = alternative.restricts(terms)
	}
	terms = f.restricts(required.restricts(terms))
	if len(required.values) > 0 && (len(alternatives) != 1 || len(all) == 0) {
		f.add(true, f.whole(), nil, "is not a single list of labels, so the policies select nothing: create a copy of "+
			"each policy for each term, and remove %q from their selectors", never)
		return nil, append(terms, never)
	}
	return all, terms
}

// readSharedResource reads a resource of the RDMA shared device plugin. Containers that request it get the files of all
// of its devices. Here, a claim gets a device that it shares with other claims.
func (m *importer) readSharedResource(f *fields) *pool {
	p := m.addPool(f.source, cmp.Or(f.text("resourcePrefix"), "rdma"), f.text("resourceName"))
	p.use = use{rdma: true, shared: true}
	limit := f.pop("rdmaHcaMax")
	number, err := strconv.ParseInt(fmt.Sprint(limit), 10, 32)
	if err != nil || number < 1 {
		f.wrong(f.path+"rdmaHcaMax", limit, "a positive number of pods")
	}
	p.sharers = strconv.FormatInt(max(number, 1), 10)
	p.terms = []string{attribute("pciAddress") + ` != ""`, attribute("rdma")}
	require := func(name string, values []string) {
		if len(values) > 0 {
			p.terms = append(p.terms, isOneOf(name, values))
		}
	}
	selectors := f.child("selectors")
	devices := f.texts("devices")
	names := slices.Concat(devices, selectors.texts("ifNames"))
	require("vendor", each(selectors.texts("vendors"), pciID))
	require("product", each(selectors.texts("deviceIDs"), pciID))
	require("driver", selectors.texts("drivers"))
	require("interface", names)
	if terms := selectors.linkTypes(p.terms); len(terms) > len(p.terms) {
		p.terms = append(terms, attribute("interface")+` != ""`) // the plugin reads the type of the interface
	}
	p.terms = selectors.restricts(p.terms)
	hasSelectors := slices.ContainsFunc(sortedKeys(selectors.values), func(key string) bool {
		return !isEmpty(selectors.values[key])
	})
	switch {
	case f.mistyped:
		p.terms = f.nothing(p.terms)
	case hasSelectors && len(devices) > 0:
		p.terms = append(p.terms, never)
		f.add(true, f.whole(), nil, "the resource has both devices and selectors, so the plugin rejects it and the "+
			"policy selects nothing: remove one of them and import it again, or replace %q in its selector", never)
	case len(p.terms) == 2: // only the terms above
		p.terms = append(p.terms, never)
		f.add(true, f.whole(), nil, "the resource has no selectors, so the plugin rejects it and the policy selects "+
			"nothing: replace %q in its selector", never)
	case len(names) != 1:
		f.add(true, f.whole(), p.resource, "containers got the files of all devices of this resource, and a claim "+
			"gives them the files of one: for more, set count and the constraint distinctAttribute %s/ifName in the "+
			"ResourceClaimTemplate; for the device of a macvlan network, set rdma in the root step of this network "+
			"instead. Up to rdmaHcaMax pods share each device, not all devices together: to change the number, set "+
			"the capacity of policy %s", policyapi.AttributeDomain, p.name)
	}
	return p
}

// withoutShared clears the resource of a network if the network's plugin gets no device of it, since several pods share
// the RDMA devices of the resource.
func (m *importer) withoutShared(n *network) {
	isShared := func(p *pool) bool { return p.shared && p.resource == n.resource }
	if !n.ofPool && slices.ContainsFunc(m.pools, isShared) {
		n.add(true, "metadata.annotations", n.resource, "pods get the shared RDMA device with a claim of its own: "+
			"for the device of this network's link, set rdma in the root step instead")
		n.resource = ""
	}
}
