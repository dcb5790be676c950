package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// network is a network that pods may reference in the Multus annotation. It is filled in two phases: reading the input
// sets the configuration, and translate sets topology, selector, link, refused and pools. If the network could not be
// translated, it has no topology.
type network struct {
	*source
	namespace, name string
	resource        string // the device plugin resource that the devices come from, if any
	requested       string // the resource that pods request together with the network, if any
	cniName         string
	plugins         []*fields
	selector        string // selects the devices if no resource defines them
	link            string // the device specified in the configuration
	refused         bool   // not translated; a finding contains the reason
	ofPool          bool   // created for pods that request a resource without a network
	topology        *v1alpha1.NetworkTopology
	templates       map[string]string // the names of the network's claim templates, by namespace
	pools           []*pool

	// The following fields are for networks that use the interfaces of other networks in the pod; see compose.
	links   []string        // the names of these interfaces, as in the configuration
	hosts   []*network      // for host links: the networks that move the links to the pod, by index in links
	derived []v1alpha1.Step // the network's steps; the first depends on links
	ofLink  bool            // the network is in the hosts of another network
	parts   []part          // the parts of a composed network
	partOf  string          // the topology that contains the network's steps, if it has no topology of its own
}

// readNetwork reads a NetworkAttachmentDefinition. The operator's kinds are read earlier, because the operator creates
// NetworkAttachmentDefinitions from them.
func (m *importer) readNetwork(o *object) {
	annotations := o.readMetadata()
	n := &network{source: o.source, namespace: o.namespace, name: o.name,
		resource: annotations.text(annotationResource)}
	config := o.child("spec").inside("config")
	switch {
	case m.network(o.namespace, o.name) != nil:
		o.forget()
		o.add(false, "", nil, "a network of this name was already read, so this one was skipped: either an "+
			"operator creates it, or the input contains it twice")
		return
	case config == nil && o.child("spec").text("config") == "":
		o.add(true, "spec.config", nil, "is empty, so the configuration is a file in the CNI directory of the "+
			"nodes: copy its content to this field, and import it again")
	case config != nil:
		n.readConfig(config)
		m.networks = append(m.networks, n)
	}
}

// readConfig reads a configuration that contains a single plugin or a list of plugins.
func (n *network) readConfig(f *fields) {
	if n.cniName = f.text("name"); n.cniName == "" {
		n.cniName = n.name // as in Multus
	}
	f.without("configuration")
	if _, isList := f.values["plugins"]; !isList {
		n.plugins = []*fields{f}
		return
	}
	for _, plugin := range f.list("plugins") {
		plugin.without("plugin")
		n.plugins = append(n.plugins, plugin)
	}
}

// readOperatorNetwork reads an object from which an operator creates a NetworkAttachmentDefinition. It builds the same
// configuration as the operator, so that the object can be translated like any other network.
func (m *importer) readOperatorNetwork(o *object) {
	annotations := o.readMetadata()
	for _, key := range sortedKeys(annotations.values) {
		if strings.HasSuffix(key, "/last-network-namespace") { // the operators store their state in it
			annotations.ignore(key)
		}
	}
	kind, spec := known().Networks[o.kind], o.child("spec")
	n := &network{source: o.source, name: o.name, cniName: o.name,
		namespace: cmp.Or(spec.text("networkNamespace"), kind.Namespace, o.namespace)}
	if prefix := kind.ResourcePrefix; prefix != "" {
		if prefix == defaultOperatorPrefix {
			prefix = m.options.OperatorPrefix
		}
		n.resource = prefix + "/" + strings.TrimPrefix(spec.text("resourceName"), prefix+"/")
	}
	config := map[string]any{"type": kind.Type}
	for _, field := range sortedKeys(kind.Parameters) {
		if value := spec.pop(field); value != nil && value != "" {
			config[kind.Parameters[field]] = value
		}
	}
	for _, key := range []string{"ipam", "capabilities"} {
		if inside := spec.inside(key); inside != nil {
			config[key] = inside.takeAll()
		}
	}
	// Errors in the configuration are reported for the plugin's parameters, which have the same names as the fields of
	// the object.
	n.plugins = append(n.plugins, spec.adopt("spec: ", config))
	if meta := strings.TrimSpace(spec.text("metaPlugins")); meta != "" {
		plugins, err := decodeJSON[[]map[string]any]("[" + meta + "]")
		if err != nil {
			o.add(true, "spec.metaPlugins", meta, "is not a list of objects in JSON, so it was not read: %v; "+
				"fix it", err)
		}
		for i, plugin := range plugins {
			n.plugins = append(n.plugins, spec.adopt(fmt.Sprintf("spec.metaPlugins: [%d].", i), plugin))
		}
	}
	m.networks = append(m.networks, n)
}

// network returns the network with the given name; nil if there is no such network in the input.
func (m *importer) network(namespace, name string) *network {
	for _, n := range m.networks {
		if n.namespace == namespace && n.name == name {
			return n
		}
	}
	return nil
}

// forget marks all fields as read, including nested fields. It is used if a single finding covers the whole object;
// otherwise, every field of an object that is not translated would cause a separate finding.
func (f *fields) forget() {
	f.takeAll()
	for _, child := range f.children {
		child.forget()
	}
}

// takeAll returns all values and marks them as read.
func (f *fields) takeAll() map[string]any {
	for key := range f.values {
		f.read[key] = true
	}
	return f.values
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }

func setIn(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	return labels
}
