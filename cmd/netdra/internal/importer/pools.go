package importer

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pool is a device plugin resource: a set of devices that pods request by the name of the resource. terms are CEL
// expressions that must all be true. plugins and reserved are set after all networks have been translated.
type pool struct {
	*source
	resource string // includes the prefix, as in pods
	name     string // the name of the policy
	terms    []string
	nodes    map[string]string
	priority int32
	use
	sharers          string // the maximum number of pods that share a device; empty if devices are exclusive
	nodeRequirements []metav1.LabelSelectorRequirement
	subfunctions     bool     // the devices are scalable functions
	reserved         bool     // Multus will attach the devices
	plugins          []string // plugins of the networks that use the pool
}

// use describes how containers access the devices in a pool. A topology uses all of its devices in the same way.
type use struct {
	vfio bool // true if applications access the devices directly
	rdma bool
	// vhost is true if containers get the device files required by virtio-user ports.
	vhost bool
	// shared is true if several pods share a device, of which their containers only use the files.
	shared bool
}

// maxAttribute is the maximum length of a string attribute of a device in bytes.
const maxAttribute = 64

// attributeResource is the device attribute with which topologies select the devices in a pool.
const attributeResource = "resourceName"

// attributeValue returns the attribute value for a resource name. It omits the prefix if the name with the prefix is
// too long.
func attributeValue(resource string) string {
	if _, name, found := strings.Cut(resource, "/"); found && len(resource) > maxAttribute {
		return name
	}
	return resource
}

// defaultPriority is the priority of policies that do not specify one.
const defaultPriority = 100

// readConfigMap reads the resources of the SR-IOV device plugin or the RDMA shared device plugin. It skips all other
// ConfigMaps.
func (m *importer) readConfigMap(o *object) {
	if m.isCreatedByNICPolicy(o) {
		m.skip(o, "the NVIDIA network operator creates it from a policy that was already read")
		return
	}
	data := o.child("data")
	found := false
	for _, key := range sortedKeys(data.values) {
		text, _ := data.values[key].(string)
		if !strings.Contains(text, "resourceList") && (key != "config.json" || !strings.Contains(text, "configList")) {
			continue
		}
		found = true
		config := data.inside(key)
		if config == nil {
			continue
		}
		for _, p := range m.readPlugin(config) {
			if key != "config.json" {
				p.nodes = map[string]string{"kubernetes.io/hostname": key}
				o.add(true, "data."+key, nil, "the SR-IOV operator uses one key for each node, so the policies are "+
					"for node %q: fix nodeSelector if the key is not the name of a node", key)
			}
		}
	}
	if !found {
		m.skip(o, "it has no resourceList or configList, so it is not the configuration of a device plugin")
		return
	}
	o.readMetadata()
}

// readPlugin reads the configuration of the SR-IOV device plugin or the RDMA shared device plugin.
func (m *importer) readPlugin(config *fields) (pools []*pool) {
	resources := config.list("resourceList")
	for i, resource := range resources {
		p := m.readResource(resource)
		// The plugin assigns a device to the first resource whose selectors match the device.
		p.priority = int32(min(defaultPriority+len(resources)-1-i, 1000)) //nolint:gosec // at most 1000
		pools = append(pools, p)
	}
	for _, resource := range config.list("configList") {
		pools = append(pools, m.readSharedResource(resource))
	}
	config.without("sharedDevicePlugin")
	return pools
}

// readResource reads one resource from the device plugin's configuration.
func (m *importer) readResource(f *fields) *pool {
	name := f.text("resourceName")
	prefix := f.text("resourcePrefix")
	if prefix == "" {
		prefix = m.options.DevicePluginPrefix
	}
	p := m.addPool(f.source, prefix, name)
	kind := f.text("deviceType")
	p.subfunctions = strings.EqualFold(kind, "auxNetDevice")
	if kind != "" && !p.subfunctions && !strings.EqualFold(kind, "netDevice") {
		p.terms = append(p.terms, never)
		f.add(true, f.path+"deviceType", kind, "only network devices are supported, so the policy selects nothing: "+
			"keep the device plugin for this resource")
	}
	f.without("resource")
	// Several selectors are alternatives.
	var alternatives []string
	for i, selector := range f.list("selectors") {
		terms, used := m.readSelector(selector, p.subfunctions)
		if i == 0 {
			p.use = used
		}
		if p.use != used {
			selector.add(true, selector.whole(), nil, "differs from the first selector in isRdma or the driver %s, "+
				"and a topology uses all of its devices in one way, so the policy does not select these devices: "+
				"create a resource for them", driverVFIO)
			terms = []string{never}
		}
		if len(terms) > 0 {
			alternatives = append(alternatives, allOf(terms))
		}
	}
	if p.subfunctions {
		p.terms = append(p.terms, attribute("type")+` == "sf"`)
	} else { // the device plugin offers virtual functions and NICs that have no virtual functions
		p.terms = append(p.terms, attribute("pciAddress")+` != ""`, attribute("numVFs")+" == 0")
	}
	switch {
	case f.mistyped:
		p.terms = f.nothing(p.terms)
	case len(alternatives) > 0:
		p.terms = append(p.terms, anyOf(alternatives))
	default:
		f.add(true, f.whole(), nil, "the resource has no selectors, so it includes every NIC without virtual "+
			"functions: add a selector to the policy if this is not intended")
	}
	return p
}

// readSelector reads one selector of a resource. Scalable functions are identified by number instead of index, and do
// not have a PCI address of their own.
func (m *importer) readSelector(f *fields, subfunctions bool) (terms []string, used use) {
	require := func(name string, values []string) {
		if len(values) > 0 {
			terms = append(terms, isOneOf(name, values))
		}
	}
	require("vendor", each(f.texts("vendors"), pciID))
	require("product", each(f.texts("devices"), pciID))
	drivers := f.texts("drivers")
	used.vfio, used.vhost = f.applications(drivers), f.flag("needVhostNet")
	if used.vfio {
		drivers = []string{driverVFIO}
	}
	require("driver", drivers)
	addresses, names, roots, index := "pciAddress", "ifName", "pciAddress", "vfIndex"
	if subfunctions {
		addresses, names, roots, index = "pfAddress", "", "", "sfNumber"
	}
	require(addresses, each(f.texts("pciAddresses"), pciAddress))
	require("interface", f.texts("nicNames"))
	nics := func(key, parent, device string) {
		if values := f.texts(key); len(values) > 0 {
			terms = append(terms, f.nics(key, values, parent, device, index))
		}
	}
	nics("pfNames", "pfName", names)
	nics("rootDevices", "pfAddress", roots)
	terms = f.linkTypes(terms)
	if used.rdma = f.flag("isRdma"); used.rdma {
		terms = append(terms, attribute("rdma"))
	}
	types := f.texts("auxTypes")
	if slices.ContainsFunc(types, func(name string) bool { return !subfunctions || name != "sf" }) {
		terms = append(terms, never)
		f.add(true, f.path+"auxTypes", types, "only scalable functions (sf) of a resource with deviceType "+
			"auxNetDevice are supported, so the policy selects nothing: replace %q in its selector", never)
	}
	terms = f.unselectable(terms)
	return f.restricts(terms), used
}

// unselectable adds the term never for each condition that policies cannot express.
func (f *fields) unselectable(terms []string) []string {
	for _, key := range sortedKeys(known().Unselectable) {
		if value := f.pop(key); !isEmpty(value) {
			terms = append(terms, never)
			f.add(true, f.path+key, value, "%s; the policy selects nothing until you replace %q in its selector",
				known().Unselectable[key], never)
		}
	}
	return terms
}

// applications reports whether a selector specifies a driver for direct access by applications. If it also specifies
// other drivers, applications adds a finding.
func (f *fields) applications(drivers []string) bool {
	forApplications := slices.Contains(drivers, driverVFIO)
	if forApplications && len(drivers) > 1 {
		f.add(true, f.path+"drivers", drivers, "a topology binds all of its devices to one driver, so the policy only "+
			"selects functions with %s: create a pool for each driver", driverVFIO)
	}
	return forApplications
}

// separateUses ensures that a pool selects nothing if an earlier pool for the same resource uses its devices in a
// different way.
func (m *importer) separateUses() {
	for i, p := range m.pools {
		j := slices.IndexFunc(m.pools[:i], func(other *pool) bool { return other.resource == p.resource })
		if j >= 0 && m.pools[j].use != p.use {
			p.terms = append(p.terms, never)
			p.add(true, "", p.resource, "%s also has this resource, and differs in isRdma, needVhostNet or the driver %s; "+
				"a topology uses all of its devices in one way, so the policy selects nothing: use a resource of its "+
				"own", m.pools[j].object, driverVFIO)
		}
	}
}

// nics returns the term that selects functions by NIC. If a value cannot be parsed, it adds a finding and returns
// never.
func (f *fields) nics(key string, values []string, parent, device, index string) string {
	term, err := ofNICs(values, parent, device, index)
	if err != nil {
		f.add(true, f.path+key, values, "cannot be parsed, so the policy selects nothing: %v; replace %q in its "+
			"selector",
			err, never)
		return never
	}
	return term
}

// linkTypes adds the term that selects one of several types of links. As in the device plugins, the case matters.
func (f *fields) linkTypes(terms []string) []string {
	var layers []string
	for _, value := range f.texts("linkTypes") {
		layers = append(layers, f.linkType("linkTypes", value, "ether", "infiniband"))
	}
	if len(layers) > 0 {
		terms = append(terms, anyOf(layers))
	}
	return terms
}

// linkType returns the term that selects either Ethernet or InfiniBand. For an InfiniBand port, there is an RDMA device
// with the link layer InfiniBand.
func (f *fields) linkType(key, value, ethernet, infiniBand string) string {
	layer := attribute("rdmaLinkLayer")
	switch value {
	case ethernet:
		return layer + ` != "infiniband"`
	case infiniBand:
		return layer + ` == "infiniband"`
	}
	f.add(true, f.path+key, value, "is neither %s nor %s, so the policy selects nothing: replace %q in its "+
		"selector", ethernet, infiniBand, never)
	return never
}

// addPool adds a pool. The pool's policy is named after the resource.
func (m *importer) addPool(s *source, prefix, name string) *pool {
	resource := name
	if prefix != "" {
		resource = prefix + "/" + name
	}
	p := &pool{source: s, resource: resource, name: m.unique("policy", name), priority: defaultPriority}
	m.pools = append(m.pools, p)
	return p
}

// readNodePolicy reads a policy that makes the SR-IOV operator create virtual functions and a pool. The pool contains
// only these virtual functions.
func (m *importer) readNodePolicy(o *object) {
	o.readMetadata()
	spec := o.child("spec")
	p := m.addPool(o.source, m.options.OperatorPrefix, spec.text("resourceName"))
	nodes := spec.child("nodeSelector")
	for _, key := range sortedKeys(nodes.values) {
		p.nodes = setIn(p.nodes, key, nodes.text(key))
	}
	p.terms = nodes.restricts(p.terms)
	// In the operator, a lower number means a higher priority, and the default is 0.
	p.priority = defaultPriority + 99 - int32(min(max(spec.number("priority"), 0), 99))
	p.terms = append(p.terms, attribute("type")+` == "vf"`)
	m.nicSelector(spec.child("nicSelector"), p)
	if linkType := spec.text("linkType"); linkType != "" {
		p.terms = append(p.terms, spec.linkType("linkType", strings.ToLower(linkType), "eth", "ib"))
	}
	p.rdma, p.vhost = spec.flag("isRdma"), spec.flag("needVhostNet")
	if p.rdma {
		p.terms = append(p.terms, attribute("rdma"))
	}
	if kind := spec.text("deviceType"); kind == driverVFIO {
		p.vfio = true
	} else if kind != "" && kind != "netdevice" {
		spec.add(true, "spec.deviceType", kind, "is not a known type: pods get the network interfaces of the functions")
	}
	p.terms = spec.unselectable(p.terms)
	m.hostSettings(spec)
	if spec.mistyped { // nodeSelector, linkType or isRdma may be unread
		p.terms = spec.nothing(p.terms)
	}
}

// hostSettings reports settings that the operator applies to the node but that the driver does not.
func (m *importer) hostSettings(spec *fields) {
	if spec.flag("externallyManaged") {
		spec.note("numVfs", "the functions are created externally (externallyManaged), as the driver expects")
	}
	if mode := spec.text("eSwitchMode"); mode != "" && mode != "legacy" {
		spec.add(true, "spec.eSwitchMode", mode, "the driver does not set the mode of NICs: set it where the "+
			"functions are created (devlink dev eswitch set)")
	}
	spec.without(kindNodePolicy)
}

// nicSelector reads the selector for the NICs that get virtual functions.
func (m *importer) nicSelector(f *fields, p *pool) {
	before := len(p.terms)
	vendor := strings.ToLower(f.text("vendor"))
	if vendor != "" {
		p.terms = append(p.terms, isOneOf("vendor", []string{vendor}))
	}
	if id := strings.ToLower(f.text("deviceID")); id != "" {
		p.terms = append(p.terms, f.functionsOf(vendor, id))
	}
	if names := f.texts("pfNames"); len(names) > 0 {
		p.terms = append(p.terms, f.nics("pfNames", names, "pfName", "", "vfIndex"))
	}
	if addresses := f.texts("rootDevices"); len(addresses) > 0 {
		p.terms = append(p.terms, f.nics("rootDevices", addresses, "pfAddress", "", "vfIndex"))
	}
	p.terms = f.restricts(f.unselectable(p.terms))
	if len(p.terms) == before {
		p.terms = append(p.terms, never)
		f.add(true, f.whole(), nil, "selects no NIC, so the policy selects nothing: replace "+
			"%q in its selector", never)
	}
}

// functionsOf returns the term that selects the virtual functions on NICs with the given PCI ID. Virtual functions and
// their NICs have different IDs, so selecting virtual functions by the NIC's ID would match nothing.
func (f *fields) functionsOf(vendor, id string) string {
	vendors := []string{vendor}
	if vendor == "" {
		for _, nic := range sortedKeys(known().Functions) {
			if v, product, _ := strings.Cut(nic, ":"); product == id {
				vendors = append(vendors, v)
			}
		}
	}
	for _, v := range vendors {
		if product, found := known().Functions[v+":"+id]; found {
			terms := []string{isOneOf("vendor", []string{v}), isOneOf("product", []string{product})}
			if v == vendor {
				terms = terms[1:] // the selector already contains this term
			}
			return allOf(terms)
		}
	}
	f.add(true, f.path+"deviceID", id, "is the ID of the NIC, and the ID of its virtual functions is unknown, so the "+
		"policy selects nothing: replace %q in its selector with %s == the ID that lspci -n shows for a function",
		never,
		attribute("product"))
	return never
}
