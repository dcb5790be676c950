package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// AttributeDomain is the domain of the driver's attributes and capacities, and the name of the driver.
	AttributeDomain = "dra.networking"
	// CNIDomain is the domain of the boolean attributes that indicate which CNI plugins may attach a device.
	CNIDomain = "cni." + AttributeDomain
	// AttributeResourceName is an attribute that Multus reads: the resource name by which NetworkAttachmentDefinitions
	// refer to the device.
	AttributeResourceName = "k8s.cni.cncf.io/resourceName"
	// AttributeDeviceID is the attribute whose value Multus passes as deviceID to the plugins in
	// NetworkAttachmentDefinitions.
	AttributeDeviceID = "k8s.cni.cncf.io/deviceID"
	// ExclusiveSuffix is appended to the device name of the entry for exclusive plugins if its policy has both
	// exclusive and shared plugins.
	ExclusiveSuffix = "-exclusive"

	// BandwidthSuffix is appended to the name of a physical function to form the name of the device from which claims
	// take the bandwidth of its link.
	BandwidthSuffix = "-bandwidth"
	// TypeBandwidth is the value of the type attribute for such a device.
	TypeBandwidth = Bandwidth

	maxIDLength     = 32 // of a C identifier that names an attribute or a capacity
	maxDomainLength = 63
	maxStringLength = 64 // bytes of a string attribute
	maxValidValues  = 10
)

// DiscoveredNames returns the names of the attributes that the driver discovers or computes in AttributeDomain.
// Policies may not set them.
func DiscoveredNames() []string {
	return []string{"adminUp", "altNames", "auxiliaryDevice", "bridgeName", "bridgeType", "carrier", "defaultRoute",
		"driver", "eswitchMode", "exposurePolicy", "ifName", "interface", "kind", "linkSpeed", "mac", "masterBridge",
		"masterKind", "mtu", "numVFs", "numaNode", "operState", "parent", "pciAddress", "pfAddress", "pfName",
		"portName", "product", "rdma", "rdmaDevice", "rdmaDevices", "rdmaLinkLayer", "rdmaNetns", "representor",
		"representorName", "sfNumber", "sriovCapable", "supportedCNIs", "switchID", "totalVFs", "type", "vendor",
		"vfIndex", "vfLinkState", "vfMAC", "vfMaxTxRate", "vfMinTxRate", "vfQoS", "vfSpoofCheck", "vfTrust", "vfVLAN",
		"vlanFiltering", "vlanID"}
}

// RequestableNames returns the subset of DiscoveredNames that is published only if a policy requests it.
func RequestableNames() []string {
	return []string{"altNames", "eswitchMode", "kind", "masterKind", "parent", "pfAddress", "portName", "rdmaDevices",
		"rdmaLinkLayer", "rdmaNetns", "representor", "representorName", "switchID", "totalVFs", "vfLinkState",
		"vfMAC", "vfMaxTxRate", "vfMinTxRate", "vfQoS", "vfSpoofCheck", "vfTrust", "vfVLAN", "vlanID"}
}

// CNIAttribute returns the name, without its domain, of the boolean attribute for a CNI plugin: for example,
// host_device for host-device.
func CNIAttribute(plugin string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(plugin)
}

// QualifiedName returns the name of an attribute or capacity with its domain; bare names are in AttributeDomain.
func QualifiedName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return AttributeDomain + "/" + name
}

// isID reports whether s can name an attribute or a capacity in its domain: a C identifier of at most 32 characters.
func isID(s string) bool {
	return len(s) <= maxIDLength && len(validation.IsCIdentifier(s)) == 0
}
