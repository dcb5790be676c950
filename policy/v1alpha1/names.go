package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// AttributeDomain is the domain for the driver's attributes and capacities. It is also the driver's name.
	AttributeDomain = "dra.networking"
	// CNIDomain is the domain for the boolean attributes that indicate which CNI plugins may attach a device.
	CNIDomain = "cni." + AttributeDomain
	// AttributeResourceName is an attribute for Multus: the resource name by which NetworkAttachmentDefinitions refer
	// to the device.
	AttributeResourceName = "k8s.cni.cncf.io/resourceName"
	// AttributeDeviceID is an attribute for Multus, which passes its value as deviceID to the plugins in
	// NetworkAttachmentDefinitions.
	AttributeDeviceID = "k8s.cni.cncf.io/deviceID"
	// ExclusiveSuffix is appended to the device name of the entry for exclusive plugins if the policy has both
	// exclusive and shared plugins.
	ExclusiveSuffix = "-exclusive"

	// BandwidthSuffix is appended to the name of a physical function to form the name of the device from which claims
	// take the link's bandwidth.
	BandwidthSuffix = "-bandwidth"
	// TypeBandwidth is the value of the type attribute for such a device.
	TypeBandwidth = Bandwidth

	maxIDLength     = 32 // of the C identifier in the name of an attribute or capacity
	maxDomainLength = 63
	maxStringLength = 64 // in bytes, of a string attribute
	maxValidValues  = 10
)

// DiscoveredNames returns the names of the attributes in AttributeDomain that the driver discovers or computes.
// Policies must not set these attributes.
func DiscoveredNames() []string {
	return []string{"adminUp", "altNames", "auxiliaryDevice", "bridgeName", "bridgeType", "carrier", "defaultRoute",
		"driver", "eswitchMode", "exposurePolicy", "ifName", "interface", "kind", "linkSpeed", "mac", "masterBridge",
		"masterKind", "mtu", "numVFs", "numaNode", "operState", "parent", "pciAddress", "pfAddress", "pfName",
		"portName", "product", "rdma", "rdmaDevice", "rdmaDevices", "rdmaLinkLayer", "rdmaNetns", "rdmaPKeys",
		"rdmaPortGUID", "rdmaPortState", "rdmaRate", "representor", "representorName", "sfNumber", "sriovCapable",
		"supportedCNIs", "switchID", "totalVFs", "type", "vendor", "vfIndex", "vfLinkState", "vfMAC", "vfMaxTxRate",
		"vfMinTxRate", "vfQoS", "vfSpoofCheck", "vfTrust", "vfVLAN", "vlanFiltering", "vlanID"}
}

// RequestableNames returns the DiscoveredNames that are published only if a policy requests them.
func RequestableNames() []string {
	return []string{"altNames", "eswitchMode", "kind", "masterKind", "parent", "pfAddress", "portName", "rdmaDevices",
		"rdmaLinkLayer", "rdmaNetns", "rdmaPKeys", "rdmaPortGUID", "rdmaRate", "representor", "representorName",
		"switchID", "totalVFs", "vfLinkState", "vfMAC", "vfMaxTxRate", "vfMinTxRate", "vfQoS", "vfSpoofCheck", "vfTrust",
		"vfVLAN", "vlanID"}
}

// CNIAttribute returns the name of the boolean attribute for a CNI plugin, without the domain: for example, host_device
// for host-device.
func CNIAttribute(plugin string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(plugin)
}

// QualifiedName returns the name of an attribute or capacity with its domain. Bare names belong to AttributeDomain.
func QualifiedName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return AttributeDomain + "/" + name
}

// isID reports whether s is a valid attribute or capacity name without a domain: a C identifier of at most 32
// characters.
func isID(s string) bool {
	return len(s) <= maxIDLength && len(validation.IsCIdentifier(s)) == 0
}
