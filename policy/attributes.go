package policy

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// LegacyPCIeRoot is published beside the standard resource.kubernetes.io/pcieRoot, with the same value.
	LegacyPCIeRoot resourceapi.QualifiedName = "device.k8s.io/pcieRoot"
	// SupportedCNIs is the attribute that lists the CNI plugins for people, with a comma before and after each. Classes
	// use the booleans in v1alpha1.CNIDomain.
	SupportedCNIs resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/supportedCNIs"
)

// MaxString is the greatest length of a string attribute, in bytes.
const MaxString = resourceapi.DeviceAttributeMaxValueLength

// Attributes returns the whole vocabulary for a device, as selectors of policies see it. Every name has a value on every
// device: an absent string is "", an absent boolean false, vfIndex, numaNode and vlanID are -1 and other numbers 0.
func Attributes(d discovery.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		name("type"):          text(d.Type),
		name("ifName"):        text(d.Name),
		name("mac"):           text(ownMAC(d)),
		name("mtu"):           number(d.MTU),
		name("linkSpeed"):     number(d.LinkSpeed),
		name("operState"):     text(d.OperState),
		name("adminUp"):       boolean(d.AdminUp),
		name("carrier"):       boolean(d.Carrier),
		name("kind"):          text(d.Kind),
		name("pciAddress"):    text(d.PCIAddress),
		name("numaNode"):      number(d.NUMANode),
		name("vendor"):        text(d.Vendor),
		name("product"):       text(d.Product),
		name("driver"):        text(d.Driver),
		name("rdma"):          boolean(d.RDMA),
		name("sriovCapable"):  boolean(d.SRIOVCapable),
		name("totalVFs"):      number(d.TotalVFs),
		name("numVFs"):        number(d.NumVFs),
		name("pfName"):        text(d.PFName),
		name("vfIndex"):       number(d.VFIndex),
		name("bridgeName"):    text(d.BridgeName),
		name("bridgeType"):    text(d.BridgeType),
		name("vlanFiltering"): boolean(d.VLANFiltering),
		name("masterBridge"):  text(d.Master),
		name("masterKind"):    text(d.MasterKind),
		name("parent"):        text(d.Parent),
		name("vlanID"):        number(d.VLANID),
		name("defaultRoute"):  boolean(d.DefaultRoute),
	}
	attributes[LegacyPCIeRoot] = text(d.PCIeRoot)
	attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = text(d.PCIeRoot)
	attributes[deviceattribute.StandardDeviceAttributePCIBusID] = text(d.PCIAddress)
	attributes[deviceattribute.StandardDeviceAttributeNUMANode] = number(d.NUMANode)
	return attributes
}

// ownMAC is empty for an address that the device has from others.
func ownMAC(d discovery.Device) string {
	if d.InheritedMAC {
		return ""
	}
	return d.MAC
}

// Published returns the attributes with which a device is published: those of AlwaysPublished, and of the others those
// that are facts of this device. An empty pcieRoot or a numaNode of a device without affinity would satisfy a claim's
// matchAttribute, so they are not published. Nor is operState, which only policies see: it changes whenever a cable does, or
// a device comes back from a pod, and every change would be a write.
func Published(d discovery.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	all := Attributes(d)
	published := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, n := range AlwaysPublished() {
		published[n] = all[n]
	}
	bridge := d.Type == discovery.TypeBridge
	for n, fact := range map[resourceapi.QualifiedName]bool{
		name("numaNode"):      d.NUMANode >= 0,
		name("bridgeName"):    bridge,
		name("bridgeType"):    bridge,
		name("vlanFiltering"): bridge,
		LegacyPCIeRoot:        d.PCIeRoot != "",
		deviceattribute.StandardDeviceAttributePCIeRoot: d.PCIeRoot != "",
		deviceattribute.StandardDeviceAttributePCIBusID: d.PCIAddress != "",
		deviceattribute.StandardDeviceAttributeNUMANode: d.NUMANode >= 0,
	} {
		if fact {
			published[n] = all[n]
		}
	}
	return published
}

// AlwaysPublished returns the names of the attributes that every published device has, if only as "" or 0. Selectors of
// device classes may read these, and no others, without a guard.
func AlwaysPublished() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{name("type"), name("ifName"), name("pfName"), name("vfIndex"), name("numVFs"),
		name("driver"), name("vendor"), name("product"), name("pciAddress"), name("linkSpeed"), name("mtu"), name("mac"),
		name("rdma"), name("sriovCapable"), name("masterBridge")}
}

// name returns the qualified name of one of the driver's own attributes.
func name(id string) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(v1alpha1.QualifiedName(id))
}

// text returns a string attribute. A string that no attribute can hold counts as absent.
func text[S ~string](s S) resourceapi.DeviceAttribute {
	value := string(s)
	if len(value) > MaxString {
		value = ""
	}
	return resourceapi.DeviceAttribute{StringValue: &value}
}

// number returns an integer attribute.
func number(n int) resourceapi.DeviceAttribute {
	value := int64(n)
	return resourceapi.DeviceAttribute{IntValue: &value}
}

// boolean returns a boolean attribute.
func boolean(b bool) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{BoolValue: &b}
}
