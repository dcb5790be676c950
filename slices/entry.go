package slices

import (
	"cmp"
	"fmt"
	"maps"
	stdslices "slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// inOrder returns the personas of a device in publication order.
func inOrder(personas []policy.Persona) []policy.Persona {
	return stdslices.SortedStableFunc(stdslices.Values(personas), func(a, b policy.Persona) int {
		return cmp.Or(exclusiveLast(a, b), cmp.Compare(a.Suffix, b.Suffix), cmp.Compare(a.Policy, b.Policy))
	})
}

// entryName returns the name of the entry for a device and a persona.
func entryName(d discovery.Device, p policy.Persona) string {
	return label(string(d.Name) + p.Suffix)
}

// impossible returns the reason why a CNI plugin cannot attach a device, or "" if it can.
func (b *builder) impossible(d *discovery.Device, plugin string) string {
	switch {
	case b.features.MovingCNIs.Has(plugin) && d.Immovable:
		return fmt.Sprintf("moves devices into pods, but the kernel cannot move a %s", describe(d))
	case b.features.StackingCNIs.Has(plugin) && d.LinkType != "":
		// macvlan_port_create and ipvlan_port_create
		return fmt.Sprintf("needs an Ethernet device, but this is a %s (link/%s)", describe(d), d.LinkType)
	case b.features.PCIAddressCNIs.Has(plugin) && d.SharedFunction:
		return "finds devices by PCI address, but several interfaces share the address of this one"
	}
	return ""
}

// describe returns a noun for the kind of device.
func describe(d *discovery.Device) string {
	switch {
	case d.Representor:
		return "representor"
	case d.BridgeType != "", d.Type == discovery.TypeOVSDatapath:
		return "bridge"
	}
	return d.Type
}

// attachable removes plugins that cannot attach a device from its personas, and omits personas without any remaining
// plugins.
func (b *builder) attachable(d discovery.Device, personas []policy.Persona) []policy.Persona {
	if !d.Immovable && d.LinkType == "" && !d.SharedFunction {
		return personas
	}
	var kept []policy.Persona
	for _, p := range personas {
		var plugins []string
		for _, plugin := range p.Plugins {
			if reason := b.impossible(&d, plugin); reason != "" {
				b.problem(p.Policy, d.Name, "CNI plugin %s %s, so the device is not offered for it: remove the plugin "+
					"from supportedCNIPlugins, or exclude such devices in the selector", plugin, reason)
				continue
			}
			plugins = append(plugins, plugin)
		}
		if len(plugins) > 0 || len(p.Plugins) == 0 {
			p.Plugins = plugins
			kept = append(kept, p)
		}
	}
	return kept
}

// entries returns the entries for a device, without pools and counters.
func (b *builder) entries(d discovery.Device, personas []policy.Persona) []Entry {
	var entries []Entry
	for _, p := range personas {
		p = b.shareable(p)
		e := Entry{Name: entryName(d, p), Device: d, Persona: p}
		e.Spec = resourceapi.Device{
			Name:       e.Name,
			Attributes: b.attributes(d, p),
			Capacity:   capacity(p),
		}
		if !p.Exclusive {
			e.Spec.AllowMultipleAllocations = ptr.To(true)
		}
		if b.withinBudget(&e) {
			entries = append(entries, e)
		}
	}
	return entries
}

// exclusiveLast is a comparison function that orders shared personas before exclusive ones.
func exclusiveLast(a, b policy.Persona) int {
	switch {
	case a.Exclusive == b.Exclusive:
		return 0
	case a.Exclusive:
		return 1
	}
	return -1
}

// shareable completes a persona for sharing: each counter of a shared persona gets a default, since otherwise the first
// claim would take the whole counter, and a shared persona without a counter gets one.
func (b *builder) shareable(p policy.Persona) policy.Persona {
	if p.Exclusive {
		return p
	}
	p.Capacity = stdslices.Clone(p.Capacity)
	if len(p.Capacity) == 0 {
		b.remark(p.Policy, "", "%s", v1alpha1.UnlimitedRemark())
		p.Capacity = []policy.Capacity{{Name: v1alpha1.UnlimitedCounter,
			Value: *resource.NewQuantity(v1alpha1.UnlimitedShares, resource.DecimalSI)}}
	}
	for i, c := range p.Capacity {
		if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
			continue
		}
		if c.Name != v1alpha1.UnlimitedCounter {
			b.remark(p.Policy, "", "capacity[%s] has no default request, so each claim takes 1: set "+
				"requestPolicy.default", c.Name)
		}
		defaultAmount := resource.MustParse("1")
		if c.Value.Cmp(defaultAmount) < 0 {
			defaultAmount = c.Value.DeepCopy()
		}
		request := ptr.Deref(c.RequestPolicy, resourceapi.CapacityRequestPolicy{})
		request.Default = &defaultAmount
		p.Capacity[i].RequestPolicy = &request
	}
	return p
}

// capacity returns the capacities to be published for a persona's counters. The API only allows request policies on
// shared devices.
func capacity(p policy.Persona) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	if len(p.Capacity) == 0 {
		return nil
	}
	published := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	for _, c := range p.Capacity {
		entry := resourceapi.DeviceCapacity{Value: c.Value.DeepCopy()}
		if !p.Exclusive {
			entry.RequestPolicy = c.RequestPolicy.DeepCopy()
		}
		published[resourceapi.QualifiedName(v1alpha1.QualifiedName(c.Name))] = entry
	}
	return published
}

// attributes returns the attributes of an entry: the device's attributes, the policy's attributes, and the CNI plugins.
func (b *builder) attributes(
	d discovery.Device, p policy.Persona,
) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := policy.Published(d, p.Publish...)
	for n, value := range p.AdditionalAttributes {
		attributes[n] = *value.DeepCopy()
	}
	if p.Policy != "" && len(p.Policy) <= policy.MaxString {
		attributes[policy.ExposurePolicy] = resourceapi.DeviceAttribute{StringValue: ptr.To(p.Policy)}
	}
	b.addPlugins(attributes, b.installed(p))
	if b.features.ListAttributes && d.NUMANode >= 0 {
		attributes[deviceattribute.StandardDeviceAttributeNUMANode] = nearNodes(d)
	}
	return attributes
}

// nearNodes returns the NUMA nodes of a device as a list, starting with its own node. A matchAttribute constraint in a
// claim is satisfied if each pair of devices has a node in common.
func nearNodes(d discovery.Device) resourceapi.DeviceAttribute {
	nodes := []int64{int64(d.NUMANode)}
	for _, n := range d.NUMANodes {
		if n != d.NUMANode {
			nodes = append(nodes, int64(n))
		}
	}
	return resourceapi.DeviceAttribute{IntValues: nodes}
}

// installed returns a persona's plugins that can work on the node, in policy order.
func (b *builder) installed(p policy.Persona) []string {
	var installed []string
	for _, plugin := range p.Plugins {
		if !b.features.CNIBinaries.Has(plugin) {
			b.problem(p.Policy, "", "CNI plugin %s is not installed on the node, so no device is offered for it on "+
				"the node: install the plugin or remove it from supportedCNIPlugins", plugin)
			continue
		}
		if missing := b.features.UnusableCNIs[plugin]; missing != "" {
			b.problem(p.Policy, "", "CNI plugin %s cannot work on the node, so no device is offered for it on the "+
				"node: %s", plugin, missing)
			continue
		}
		installed = append(installed, plugin)
	}
	return installed
}

// addPlugins adds the attributes with which classes select the plugins: a list if the cluster supports list attributes;
// otherwise a boolean for each plugin and, if it is not too long, a human-readable string.
func (b *builder) addPlugins(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, plugins []string) {
	if len(plugins) == 0 { // the API rejects empty lists
		return
	}
	if b.features.ListAttributes {
		attributes[policy.SupportedCNIs] = resourceapi.DeviceAttribute{StringValues: plugins}
		return
	}
	for _, plugin := range plugins {
		attributes[resourceapi.QualifiedName(v1alpha1.CNIDomain+"/"+
			v1alpha1.CNIAttribute(plugin))] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
	}
	if text := "," + strings.Join(plugins, ",") + ","; len(text) <= policy.MaxString {
		attributes[policy.SupportedCNIs] = resourceapi.DeviceAttribute{StringValue: &text}
	}
}

// withinBudget drops attributes from files on the node, and then attributes that classes do not need, until the entry
// has no more attributes and capacities than the API allows. It returns false if that is not enough, in which case the
// entry cannot be published. It also enforces the API's limit on the number of values in all attributes, including
// values in lists. This always succeeds, since a policy has at most 16 plugins, and all NUMA nodes except the device's
// own can be dropped.
func (b *builder) withinBudget(e *Entry) bool {
	const limit = resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	dispensable := []resourceapi.QualifiedName{policy.ExposurePolicy}
	if !b.features.ListAttributes { // classes read the list
		dispensable = append(dispensable, policy.SupportedCNIs)
	}
	dispensable = append(dispensable, policy.LegacyPCIeRoot, policy.RDMADevice)
	nodes := e.Spec.Attributes[deviceattribute.StandardDeviceAttributeNUMANode]
	if values(e) > resourceapi.ResourceSliceMaxAttributeValuesPerDevice && len(nodes.IntValues) > 1 {
		nodes.IntValues = nodes.IntValues[:1]
		e.Spec.Attributes[deviceattribute.StandardDeviceAttributeNUMANode] = nodes
	}
	count := func() int { return len(e.Spec.Attributes) + len(e.Spec.Capacity) }
	var dropped []string
	for _, name := range stdslices.Backward(stdslices.Sorted(maps.Keys(e.Device.Attributes))) {
		if _, ofPolicy := e.Persona.AdditionalAttributes[name]; count() > limit && !ofPolicy {
			delete(e.Spec.Attributes, name)
			dropped = append(dropped, string(name))
		}
	}
	for _, name := range dispensable {
		if count() > limit {
			delete(e.Spec.Attributes, name)
		}
	}
	if count() <= limit {
		if len(dropped) > 0 {
			b.remark(e.Persona.Policy, e.Device.Name, "its entry %s is published without %s of the node's attribute "+
				"files, since the limit is %d attributes and capacities: remove some from the files or the policy",
				e.Name, strings.Join(dropped, ", "), limit)
		}
		return true
	}
	b.problem(e.Persona.Policy, e.Device.Name, "its entry %s is not published: it has %d attributes and capacities, "+
		"%d of them from the policy, and the limit is %d: "+
		"remove additional or requested attributes, plugins or counters", e.Name, count(), fromPolicy(e), limit)
	return false
}

// values returns the total number of attribute values in an entry.
func values(e *Entry) int {
	n := 0
	for _, a := range e.Spec.Attributes {
		n += max(1, len(a.StringValues), len(a.IntValues))
	}
	return n
}

// fromPolicy returns how many of the attributes and capacities come from the policy.
func fromPolicy(e *Entry) int {
	discovered := policy.Published(e.Device)
	added := 0
	for n := range maps.Keys(e.Spec.Attributes) {
		if _, ok := discovered[n]; !ok {
			added++
		}
	}
	return added + len(e.Spec.Capacity)
}
