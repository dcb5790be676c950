package importer

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// poolPolicies returns policies that offer the devices in pools. As with device plugins, a device is offered to only
// one pod at a time, unless the pool is shared.
func (m *importer) poolPolicies() []*policyapi.DeviceExposurePolicy {
	var all []*policyapi.DeviceExposurePolicy
	for _, p := range m.pools {
		if len(p.plugins) == 0 {
			p.add(true, "", p.resource, "no policy was created for this resource, since none of its networks has a "+
				"topology")
			continue
		}
		value := attributeValue(p.resource)
		made := newPolicy(p.name, allOf(p.terms), p.plugins, p.sharers)
		if p.shared { // other resources and networks may share the same devices
			made.Spec.Exposure.DeviceNameSuffix = m.suffix(p.name, "pool "+p.name)
		}
		made.Spec.Priority = p.priority
		made.Spec.Exposure.AdditionalAttributes = map[string]policyapi.AttributeValue{
			attributeResource: {String: &value},
		}
		if p.reserved {
			made.Spec.Exposure.ResourceName = p.resource // Multus identifies the devices by this name
		}
		if len(p.nodes)+len(p.nodeRequirements) > 0 {
			made.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: p.nodes, MatchExpressions: p.nodeRequirements}
		}
		all = appendValid(all, made, p.source)
	}
	return all
}

// appendValid appends a policy if the API server and the webhook would accept it. Otherwise, the errors are reported as
// findings for the policy's source.
func appendValid(all []*policyapi.DeviceExposurePolicy, made *policyapi.DeviceExposurePolicy,
	s *source) []*policyapi.DeviceExposurePolicy {
	problems, _ := policy.Check(made)
	for _, problem := range problems {
		s.add(true, "", nil, "policy %s was not created, since it would not be valid: %v", made.Name, problem)
	}
	if len(problems) > 0 {
		return all
	}
	return append(all, made)
}

// sharers is the maximum number of pods that may share a link. Multus has no such limit, but the scheduler needs one.
const sharers = "1024"

// linkPolicies returns policies for the links named in configurations, one for each combination of a link and a plugin.
// It skips networks with a resource, because their devices are in a pool.
func (m *importer) linkPolicies() []*policyapi.DeviceExposurePolicy {
	var all []*policyapi.DeviceExposurePolicy
	seen := map[[2]string]bool{}
	for _, n := range m.networks {
		if n.topology == nil || n.resource != "" {
			continue
		}
		plugin := n.topology.Spec.Steps[0].Type
		key := [2]string{n.selector, plugin}
		if seen[key] {
			continue
		}
		seen[key] = true
		schema, _ := m.options.Schemas.Lookup(plugin)
		moves := schema.Output.Devices == movesDevice
		limit := sharers
		if moves {
			limit = ""
		}
		made := newPolicy(m.unique("policy", n.link, plugin), n.selector, []string{plugin}, limit)
		made.Spec.Exposure.DeviceNameSuffix = m.suffix(plugin, "plugin "+plugin)
		if !moves {
			made.Spec.Exposure.ExclusionGroup = m.exclusionGroup(n.selector, plugin)
			n.add(false, "", nil, "up to %s pods share link %q: to change the number, set the capacity of policy %s",
				sharers, n.link, made.Name)
		}
		all = appendValid(all, made, n.source)
	}
	return all
}

// suffix returns the suffix for the device names of the entries of a plugin or a resource, which user identifies. Each
// user has its own suffix, because a device gets an entry from only one of several policies with the same suffix.
func (m *importer) suffix(name, user string) string {
	const length = 28 // with the dash and a number of two digits, at most 32
	base := stepName(name, nil)
	base = "-" + strings.Trim(base[:min(len(base), length)], "-")
	suffix := unused(base, func(suffix string) bool { return m.suffixes[suffix] != "" && m.suffixes[suffix] != user })
	m.suffixes = setIn(m.suffixes, suffix, user)
	return suffix
}

// exclusionGroup returns the exclusion group for a plugin that cannot share a link with some other plugin; empty if it
// can share the link with every plugin. The name can be constant, because a group only affects entries for the same
// link.
func (m *importer) exclusionGroup(selector, plugin string) string {
	schema, _ := m.options.Schemas.Lookup(plugin)
	for _, n := range m.networks {
		if n.topology == nil || n.resource != "" || n.selector != selector {
			continue
		}
		other := n.topology.Spec.Steps[0].Type
		reverse, _ := m.options.Schemas.Lookup(other)
		if slices.Contains(schema.ConflictsWith, other) || slices.Contains(reverse.ConflictsWith, plugin) {
			return "either"
		}
	}
	return ""
}

// newPolicy returns a policy that offers the selected devices for use with plugins. limit is the maximum number of pods
// that share a device. If it is empty, devices are exclusive.
func newPolicy(name, selector string, plugins []string, limit string) *policyapi.DeviceExposurePolicy {
	exposure := &policyapi.Exposure{}
	plugins = slices.Clone(plugins)
	slices.Sort(plugins)
	for _, plugin := range slices.Compact(plugins) {
		exposure.SupportedCNIPlugins = append(exposure.SupportedCNIPlugins,
			policyapi.CNIPlugin{Name: plugin, Exclusive: limit == ""})
	}
	if limit != "" {
		defaultAmount := amount("1")
		exposure.AllowMultipleAllocations = true
		exposure.Capacity = map[string]policyapi.Capacity{"interfaces": {Value: amount(limit),
			RequestPolicy: &policyapi.RequestPolicy{Default: &defaultAmount}}}
	}
	made := &policyapi.DeviceExposurePolicy{Spec: policyapi.DeviceExposurePolicySpec{
		Priority: defaultPriority, Action: policyapi.ActionExpose, Exposure: exposure,
		Selector: policyapi.DeviceSelector{CEL: selector},
	}}
	made.APIVersion, made.Kind, made.Name = policyapi.GroupVersion().String(), manifest.KindPolicy, name
	return made
}

func amount(text string) policyapi.Amount {
	return policyapi.Amount{Quantity: resource.MustParse(text)}
}
