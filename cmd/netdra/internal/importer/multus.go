package importer

import (
	"fmt"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// reserve creates the root step of a topology that only allocates a network's devices and attaches nothing, because
// Multus continues to run the network's plugins. For a network without a resource, it returns nil, because Multus does
// not need a device for such a network. The parameters of the plugins are not translated, so they are not read.
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
		n.add(true, n.plugins[0].path+"type", nil, "is missing, so the plugin is unknown: add it")
		return nil
	}
	for _, p := range n.pools {
		if p.vfio || p.rdma || p.vhost {
			n.add(true, "metadata.annotations", n.resource, "the network was not translated: the device plugin gives "+
				"containers the files of these devices (vfio, RDMA, vhost), but this driver does so only for devices that it "+
				"attaches: import it without --keep-multus")
			return nil
		}
	}
	n.add(true, "metadata.annotations", n.resource, "Multus up to 4.2.3 finds the device by the name of a "+
		"ResourceClaim, so it supports only claims that users create, with one device each: create one for each pod "+
		"instead of the template, and write its name here. A Multus that reads the attributes of devices (#1492) "+
		"needs no change")
	topology.Spec.Attachment = v1alpha1.AttachmentExternal
	step := &v1alpha1.Step{Name: stepName(cniType, nil), Type: cniType}
	n.selector = m.ofResource(n)
	step.Selector = &v1alpha1.StepSelector{CEL: n.selector}
	for _, p := range n.pools {
		p.reserved = true
	}
	return step
}

// ofResource returns the term that selects the devices of a network's resource.
func (m *importer) ofResource(n *network) string {
	if len(n.pools) == 0 {
		fields := fmt.Sprintf("additionalAttributes: {%s: %s}", attributeResource, attributeValue(n.resource))
		if m.options.KeepMultus {
			fields += " and resourceName: " + n.resource // sets the attributes read by Multus
		}
		n.add(true, "metadata.annotations", n.resource, "the input does not define this resource, so no policy offers "+
			"its devices: import the configuration of its device plugin, too, or write a policy with %s",
			fields)
	}
	return fmt.Sprintf("%s.?%s.orValue(\"\") == %q", strings.TrimSuffix(attribute(""), "."), attributeResource,
		attributeValue(n.resource))
}

// isReserved reports whether the network's devices are reserved and will be attached by Multus.
func (n *network) isReserved() bool {
	return n.topology != nil && n.topology.Spec.Attachment == v1alpha1.AttachmentExternal
}
