package importer

import (
	"slices"
	"strings"
)

// pool is a resource of a device plugin: devices, of which pods ask for some by its name. terms are parts of a CEL
// expression that must all be true; plugins and reserved are known only when all networks were translated.
type pool struct {
	*source
	resource string // with prefix, as pods name it
	name     string // of the policy
	terms    []string
	nodes    map[string]string
	priority int32
	vfio     bool // applications drive the devices themselves
	rdma     bool
	reserved bool     // Multus attaches the devices
	plugins  []string // of the networks that use it
}

// maxAttribute is how many bytes a string attribute of a device may have.
const maxAttribute = 64

// attributeResource is the attribute of devices by which topologies know the pool.
const attributeResource = "resourceName"

// attributeValue is the resource's name as an attribute can hold it: without prefix if it is too long.
func attributeValue(resource string) string {
	if _, name, found := strings.Cut(resource, "/"); found && len(resource) > maxAttribute {
		return name
	}
	return resource
}

// defaultPriority is the priority of a policy without one.
const defaultPriority = 100

// readConfigMap reads the pools of the SR-IOV device plugin. It is nil for any other ConfigMap.
func (m *importer) readConfigMap(o *object) {
	data := o.child("data")
	found := false
	for _, key := range sortedKeys(data.values) {
		text, _ := data.values[key].(string)
		if !strings.Contains(text, "resourceList") {
			continue
		}
		found = true
		config := data.inside(key)
		if config == nil {
			continue
		}
		resources := config.list("resourceList")
		for i, resource := range resources {
			p := m.readResource(resource)
			// The plugin gives a device to the first resource that selects it.
			p.priority = int32(min(defaultPriority+len(resources)-1-i, 1000)) //nolint:gosec // at most 1000
			if key != "config.json" {
				p.nodes = map[string]string{"kubernetes.io/hostname": key}
				o.add(true, "data."+key, nil, "the SR-IOV operator has a key for each node, so the policies of it "+
					"are for node %q: correct nodeSelector if the key is something else", key)
			}
		}
	}
	if !found {
		m.skip(o, "it has no resourceList, so it is not the configuration of the SR-IOV device plugin")
		return
	}
	o.readMetadata()
}

// readResource reads a resource of the device plugin.
func (m *importer) readResource(f *fields) *pool {
	name := f.text("resourceName")
	prefix := f.text("resourcePrefix")
	if prefix == "" {
		prefix = m.options.DevicePluginPrefix
	}
	p := m.addPool(f.source, prefix, name)
	kind := f.text("deviceType")
	if kind != "" && !strings.EqualFold(kind, "netDevice") {
		p.terms = append(p.terms, never)
		f.add(true, f.path+"deviceType", kind, "only network devices on the PCI bus are offered, so the policy "+
			"selects nothing: keep the device plugin for this resource")
	}
	f.note("excludeTopology", "the driver takes no part in the decisions of kubelet's topology manager: claims "+
		"choose by the attributes numaNode and pcieRoot")
	f.action("additionalInfo", "containers get no PCIDEVICE_… variables: the PCI address is in the claim's metadata "+
		"file, and what else there is can be additionalAttributes of the policy")
	// Several selectors are alternatives.
	var alternatives []string
	for _, selector := range f.list("selectors") {
		terms := m.readSelector(selector, p)
		if len(terms) > 0 {
			alternatives = append(alternatives, allOf(terms))
		}
	}
	// The device plugin offers functions, and NICs without virtual functions.
	p.terms = append(p.terms, attribute("pciAddress")+` != ""`, attribute("numVFs")+" == 0")
	switch {
	case f.mistyped:
		p.terms = f.nothing(p.terms)
	case len(alternatives) > 0:
		p.terms = append(p.terms, anyOf(alternatives))
	default:
		f.add(true, f.whole(), nil, "the resource has no selectors, so it is every network card "+
			"without functions: add a selector to the policy if that is not meant")
	}
	return p
}

// readSelector reads the selectors of a resource.
func (m *importer) readSelector(f *fields, p *pool) []string {
	var terms []string
	require := func(name string, values []string) {
		if len(values) > 0 {
			terms = append(terms, isOneOf(name, values))
		}
	}
	require("vendor", lower(f.texts("vendors")))
	require("product", lower(f.texts("devices")))
	drivers := f.texts("drivers")
	require("driver", drivers)
	m.applications(f, p, drivers)
	require("pciAddress", pciAddresses(f.texts("pciAddresses")))
	require("interface", f.texts("nicNames"))
	cards := func(key, parent, device string) {
		if values := f.texts(key); len(values) > 0 {
			terms = append(terms, f.cards(key, values, parent, device, false))
		}
	}
	cards("pfNames", "pfName", "ifName")
	cards("rootDevices", "pfAddress", "pciAddress")
	if types := f.texts("linkTypes"); len(types) > 0 {
		layers := make([]string, len(types))
		for i, value := range types {
			layers[i] = f.linkType("linkTypes", value)
		}
		terms = append(terms, anyOf(layers))
	}
	if f.flag("isRdma") {
		p.rdma = true
		terms = append(terms, attribute("rdma"))
	}
	for _, key := range []string{"ddpProfiles", "acpiIndexes", "pKeys", "vdpaType", "auxTypes"} {
		if value := f.pop(key); !isEmpty(value) {
			terms = append(terms, never)
			f.add(true, f.path+key, value, "devices have no such attribute, so the policy selects nothing: replace "+
				"%q in its selector by what tells these devices apart, or by true", never)
		}
	}
	f.action("needVhostNet", "containers don't get /dev/vhost-net: mount it as a hostPath, with the privileges for it")
	return f.restricts(terms)
}

// applications says whether the drivers of a pool are for applications.
func (m *importer) applications(f *fields, p *pool, drivers []string) {
	forApplications := slices.Contains(drivers, driverVFIO)
	p.vfio = p.vfio || forApplications
	if forApplications && len(drivers) > 1 {
		f.add(true, f.path+"drivers", drivers, "devices that a topology gives are all bound to one driver, so here to "+
			"%s: make a pool for each driver", driverVFIO)
	}
}

// cards returns the term for the functions of NICs; never, and a finding, if it cannot be read.
func (f *fields) cards(key string, values []string, parent, device string, functionsOnly bool) string {
	term, err := ofCards(values, parent, device, functionsOnly)
	if err != nil {
		f.add(true, f.path+key, values, "cannot be read: %v; the policy selects nothing until %q in its selector is "+
			"replaced", err, never)
		return never
	}
	return term
}

// linkType is the term for Ethernet or InfiniBand. A port of InfiniBand is an RDMA device with that link layer; without
// it there is none.
func (f *fields) linkType(key, value string) string {
	layer := attribute("rdmaLinkLayer")
	switch strings.ToLower(value) {
	case "eth", "ether":
		return layer + ` != "infiniband"`
	case "ib", "infiniband":
		return layer + ` == "infiniband"`
	}
	f.add(true, f.path+key, value, "is not a known type, so the policy selects nothing: replace %q in its "+
		"selector", never)
	return never
}

// addPool adds a pool; its policy is named after the resource.
func (m *importer) addPool(s *source, prefix, name string) *pool {
	resource := name
	if prefix != "" {
		resource = prefix + "/" + name
	}
	p := &pool{source: s, resource: resource, name: m.unique("policy", name), priority: defaultPriority}
	m.pools = append(m.pools, p)
	return p
}

// readNodePolicy reads a policy from which the SR-IOV operator creates functions and a pool. It only covers virtual
// functions, which the operator creates.
func (m *importer) readNodePolicy(o *object) {
	o.readMetadata()
	spec := o.child("spec")
	p := m.addPool(o.source, m.options.OperatorPrefix, spec.text("resourceName"))
	nodes := spec.child("nodeSelector")
	for _, key := range sortedKeys(nodes.values) {
		p.nodes = setIn(p.nodes, key, nodes.text(key))
	}
	p.terms = nodes.restricts(p.terms)
	// Of two policies the operator takes the one with the lower number, which is 0 if there is none.
	p.priority = defaultPriority + 99 - int32(min(max(spec.number("priority"), 0), 99))
	p.terms = append(p.terms, attribute("type")+` == "vf"`)
	m.nicSelector(spec.child("nicSelector"), p)
	if linkType := spec.text("linkType"); linkType != "" {
		p.terms = append(p.terms, spec.linkType("linkType", linkType))
	}
	p.rdma = spec.flag("isRdma")
	if p.rdma {
		p.terms = append(p.terms, attribute("rdma"))
	}
	if kind := spec.text("deviceType"); kind == driverVFIO {
		p.vfio = true
	} else if kind != "" && kind != "netdevice" {
		spec.add(true, "spec.deviceType", kind, "is not a known type: the interfaces of the functions are given")
	}
	m.hostSettings(spec)
	if spec.mistyped { // nodeSelector, linkType or isRdma may be what was not read
		p.terms = spec.nothing(p.terms)
	}
}

// hostSettings reports what the operator does to the node, which the driver leaves to others.
func (m *importer) hostSettings(spec *fields) {
	managed := spec.flag("externallyManaged")
	if managed {
		spec.note("numVfs", "somebody else makes the functions (externallyManaged), as the driver expects it")
	}
	spec.action("numVfs", "the driver makes no functions: let something on the node write sriov_numvfs at boot, or "+
		"keep the operator for that alone, without its device plugin")
	spec.action("mtu", "the driver leaves the MTU of cards alone: set it where the functions are made")
	if mode := spec.text("eSwitchMode"); mode != "" && mode != "legacy" {
		spec.add(true, "spec.eSwitchMode", mode, "the driver leaves the mode of cards alone: set it where the "+
			"functions are made (devlink dev eswitch set)")
	}
	spec.action("needVhostNet", "containers don't get /dev/vhost-net: mount it as a hostPath, with the privileges "+
		"for it")
	spec.action("vdpaType", "there are no vDPA devices: keep the device plugin for this resource")
	spec.action("bridge", "the driver makes no bridges: make it where the functions are made")
	spec.action("eSwitchParams", "the driver leaves the mode of cards alone: set it where the functions are made")
	spec.note("excludeTopology", "the driver takes no part in the decisions of kubelet's topology manager: claims "+
		"choose by the attributes numaNode and pcieRoot")
}

// nicSelector reads the selector of the functions' NICs.
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
		p.terms = append(p.terms, f.cards("pfNames", names, "pfName", "ifName", true))
	}
	if addresses := f.texts("rootDevices"); len(addresses) > 0 {
		p.terms = append(p.terms, f.cards("rootDevices", addresses, "pfAddress", "pciAddress", true))
	}
	if filter := f.text("netFilter"); filter != "" {
		p.terms = append(p.terms, never)
		f.add(true, f.path+"netFilter", filter, "devices have no such attribute, so the policy selects nothing: "+
			"replace %q in its selector by what tells these devices apart", never)
	}
	p.terms = f.restricts(p.terms)
	if len(p.terms) == before {
		p.terms = append(p.terms, never)
		f.add(true, f.whole(), nil, "selects no card, so the policy selects nothing: replace "+
			"%q in its selector", never)
	}
}

// functionsOf returns the term for the virtual functions of a NIC with a PCI id. Functions have their own ids, so a
// selector by the NIC's id would match no function.
func (f *fields) functionsOf(vendor, id string) string {
	vendors := []string{vendor}
	if vendor == "" {
		for _, card := range sortedKeys(known().Functions) {
			if v, product, _ := strings.Cut(card, ":"); product == id {
				vendors = append(vendors, v)
			}
		}
	}
	for _, v := range vendors {
		if product, found := known().Functions[v+":"+id]; found {
			terms := []string{isOneOf("vendor", []string{v}), isOneOf("product", []string{product})}
			if v == vendor {
				terms = terms[1:] // the selector has it already
			}
			return allOf(terms)
		}
	}
	f.add(true, f.path+"deviceID", id, "is the id of the card, and that of its functions is not known, so the policy "+
		"selects nothing: replace %q in its selector by %s == the id that lspci -n shows for a function", never,
		attribute("product"))
	return never
}
