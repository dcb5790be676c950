package importer

import (
	"fmt"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// reserve makes of a network with a resource a topology that gives pods its devices and attaches nothing: Multus goes
// on running the plugins of the network. Of a network without a resource nothing is made: Multus needs no device for
// it. Parameters of the plugins are not read then: none of them is ours to translate.
func (m *importer) reserve(n *network, topology *v1alpha1.NetworkTopology) *v1alpha1.Step {
	cniType := n.plugins[0].text("type")
	for _, plugin := range n.plugins {
		plugin.forget()
	}
	switch {
	case n.resource == "":
		n.add(false, "", nil, "has no resource of a device plugin: Multus attaches it as before")
		return nil
	case cniType == "":
		n.add(true, n.plugins[0].path+"type", nil, "is missing, so the plugin is not known: correct it")
		return nil
	}
	for _, p := range n.pools {
		if p.vfio || p.rdma {
			n.add(true, "metadata.annotations", n.resource,
				"containers get files of these devices (vfio, RDMA) from the device plugin, and from this driver "+
					"only where it attaches them, so nothing was made of it: import it without --keep-multus")
			return nil
		}
	}
	n.add(true, "metadata.annotations", n.resource, "Multus until 4.2.3 finds the device by the name of a "+
		"ResourceClaim, so it works for claims that users make, with one device each: make one for each pod in place of the "+
		"template, and write its name here. A Multus that reads the attributes of devices (#1492) finds it as it is")
	topology.Spec.Attachment = v1alpha1.AttachmentExternal
	step := &v1alpha1.Step{Name: stepName(cniType, nil), Type: cniType}
	n.selector = m.ofResource(n)
	step.Selector = &v1alpha1.StepSelector{CEL: n.selector}
	for _, p := range n.pools {
		p.reserved = true
	}
	return step
}

// ofResource is the term for devices of the resource of a network.
func (m *importer) ofResource(n *network) string {
	if len(n.pools) == 0 {
		fields := fmt.Sprintf("additionalAttributes: {%s: %s}", attributeResource, attributeValue(n.resource))
		if m.options.KeepMultus {
			fields += " and resourceName: " + n.resource // by which the device gets the attributes that Multus reads
		}
		n.add(true, "metadata.annotations", n.resource, "nothing that was imported has this resource, so no "+
			"policy offers its devices: import the configuration of its device plugin, too, or write a policy with %s",
			fields)
	}
	return fmt.Sprintf("%s.?%s.orValue(\"\") == %q", strings.TrimSuffix(attribute(""), "."), attributeResource,
		attributeValue(n.resource))
}

// isReserved reports whether Multus attaches the devices of a network.
func (n *network) isReserved() bool {
	return n.topology != nil && n.topology.Spec.Attachment == v1alpha1.AttachmentExternal
}

// reservedTemplate returns the name of the claim template for a network that Multus attaches: what else the pod wants
// it wants of Multus.
func (m *importer) reservedTemplate(w *workload, s *selection, n *network) string {
	if s.deviceID == "" {
		return m.plainTemplate(n, w.namespace)
	}
	t := template(n, w.namespace, m.unique("template "+w.namespace, w.name, n.topology.Name))
	pick(t, s.deviceID)
	m.templates = append(m.templates, t)
	return t.Name
}
