package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// LegacyPCIeRoot is published beside the standard resource.kubernetes.io/pcieRoot, with the same value.
	LegacyPCIeRoot resourceapi.QualifiedName = "device.k8s.io/pcieRoot"
	// SupportedCNIs is the attribute with the CNI plugins of an entry. Usually it is a string for people, with a comma
	// before and after each plugin, and classes use the booleans in v1alpha1.CNIDomain. In clusters with list
	// attributes it is a list, for classes too, and there are no booleans.
	SupportedCNIs resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/supportedCNIs"
	// RDMADevice is the attribute with the name of the first RDMA device, by which monitoring tools find its counters.
	// Classes have little use for it: the same card has other names on other nodes.
	RDMADevice resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/rdmaDevice"
)

// ownDomain begins the names of the driver's own attributes.
const ownDomain resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/"

// MaxString is the greatest length of a string attribute, in bytes.
const MaxString = resourceapi.DeviceAttributeMaxValueLength

// attribute is an attribute of a device.
type attribute struct {
	name resourceapi.QualifiedName
	// value is a string, an int64 or a bool.
	value     any
	published publication
}

// forAPI returns the value as the API has it.
func (a attribute) forAPI() resourceapi.DeviceAttribute {
	switch value := a.value.(type) {
	case string:
		return resourceapi.DeviceAttribute{StringValue: &value}
	case int64:
		return resourceapi.DeviceAttribute{IntValue: &value}
	case bool:
		return resourceapi.DeviceAttribute{BoolValue: &value}
	}
	// impossible: text, list, number and boolean make values
	panic(fmt.Sprintf("attribute %s is a %T", a.name, a.value))
}

// publication says whether an attribute is published.
type publication int

const (
	// never is for attributes that only policies see.
	never publication = iota
	// sometimes is for attributes that are published where they are facts. An empty pcieRoot or a numaNode of a device
	// without affinity would satisfy a claim's matchAttribute.
	sometimes
	always
)

// facts is sometimes if these are facts of the device, else never.
func facts(these bool) publication {
	if these {
		return sometimes
	}
	return never
}

// vocabulary returns all attributes of a device. OperState is not published, nor what else goes with it: it changes
// whenever a cable does, or a device comes back from a pod, and every change would be a write.
func vocabulary(d *discovery.Device) []attribute {
	vf := cmp.Or(d.Settings, &discovery.VFSettings{})
	return []attribute{
		{ownDomain + "type", text(d.Type), always},
		{ownDomain + "kind", text(d.Kind), never},
		{ownDomain + "ifName", text(d.Name), always},
		{ownDomain + "interface", text(d.Interface), never},
		{ownDomain + "altNames", list(d.AltNames), never},
		{ownDomain + "mac", text(ownMAC(d)), always},
		{ownDomain + "mtu", number(d.MTU), always},
		{ownDomain + "linkSpeed", number(d.LinkSpeed), always},
		{ownDomain + "operState", text(d.OperState), never},
		{ownDomain + "adminUp", boolean(d.AdminUp), never},
		{ownDomain + "carrier", boolean(d.Carrier), never},
		{ownDomain + "defaultRoute", boolean(d.DefaultRoute), never},
		{ownDomain + "masterBridge", text(d.Master), always},
		{ownDomain + "masterKind", text(d.MasterKind), never},
		{ownDomain + "parent", text(d.Parent), never},
		{ownDomain + "vlanID", number(d.VLANID), never},
		{ownDomain + "bridgeName", text(d.BridgeName), facts(d.Type == discovery.TypeBridge)},
		{ownDomain + "bridgeType", text(d.BridgeType), facts(d.Type == discovery.TypeBridge)},
		{ownDomain + "vlanFiltering", boolean(d.VLANFiltering), facts(d.Type == discovery.TypeBridge)},

		{ownDomain + "pciAddress", text(d.PCIAddress), always},
		{ownDomain + "numaNode", number(d.NUMANode), facts(d.NUMANode >= 0)},
		{ownDomain + "vendor", text(d.Vendor), always},
		{ownDomain + "product", text(d.Product), always},
		{ownDomain + "driver", text(d.Driver), always},
		{ownDomain + "rdma", boolean(d.RDMA), always},
		{RDMADevice, text(first(d.RDMADevices)), facts(len(d.RDMADevices) > 0)},
		{ownDomain + "rdmaDevices", list(d.RDMADevices), never},
		{ownDomain + "rdmaLinkLayer", text(d.RDMALinkLayer), never},
		{ownDomain + "rdmaNetns", text(d.RDMANetns), never},
		{ownDomain + "portName", text(d.PortName), never},
		{ownDomain + "switchID", text(d.SwitchID), never},
		{ownDomain + "representor", boolean(d.Representor), never},

		{ownDomain + "sriovCapable", boolean(d.SRIOVCapable), always},
		{ownDomain + "totalVFs", number(d.TotalVFs), never},
		{ownDomain + "numVFs", number(d.NumVFs), always},
		{ownDomain + "eswitchMode", text(d.EswitchMode), never},
		{ownDomain + "pfName", text(d.PFName), always},
		{ownDomain + "pfAddress", text(d.PFAddress), never},
		{ownDomain + "vfIndex", number(d.VFIndex), always},
		{ownDomain + "vfMAC", text(vf.MAC), never},
		{ownDomain + "vfVLAN", number(vf.VLAN), never},
		{ownDomain + "vfQoS", number(vf.QoS), never},
		{ownDomain + "vfTrust", boolean(vf.Trust), never},
		{ownDomain + "vfSpoofCheck", boolean(vf.SpoofCheck), never},
		{ownDomain + "vfLinkState", text(vf.LinkState), never},
		{ownDomain + "vfMinTxRate", number(vf.MinTxRate), never},
		{ownDomain + "vfMaxTxRate", number(vf.MaxTxRate), never},

		{LegacyPCIeRoot, text(d.PCIeRoot), facts(d.PCIeRoot != "")},
		{deviceattribute.StandardDeviceAttributePCIeRoot, text(d.PCIeRoot), facts(d.PCIeRoot != "")},
		{deviceattribute.StandardDeviceAttributePCIBusID, text(d.PCIAddress), facts(d.PCIAddress != "")},
		{deviceattribute.StandardDeviceAttributeNUMANode, number(d.NUMANode), facts(d.NUMANode >= 0)},
	}
}

// Attributes returns the whole vocabulary for a device, as selectors of policies see it; names without a domain are in
// that of the driver. Every name has a value on every device: an absent string is "", an absent boolean false, vfIndex,
// numaNode and vlanID are -1 and other numbers 0.
//
// All devices:
//
//	type           pf, vf, nic, bridge, vlan, bond, or else the kernel's link kind
//	kind           the kernel's link kind: device (hardware), bridge, vlan, bond, veth...
//	ifName         the device's name: of a virtual function <pf>v<index>, else that of the interface
//	interface      the present name of the interface; empty where there is none, as with userspace drivers
//	altNames       its alternative names, with a comma before and after each: altNames.contains(",data0,")
//	mac            its address, unless it has that of one of its ports
//	mtu            in bytes
//	linkSpeed      in Mbit/s; 0 if unknown, and of bridges
//	operState      up, down, dormant, lowerlayerdown...
//	adminUp        whether it was set up
//	carrier        whether the medium works
//	defaultRoute   whether the node's own traffic goes over it
//	masterBridge   what it is a port of: a bridge, bond, vrf...
//	masterKind     and the kind of that
//	parent         what a VLAN, macvlan... stands on
//	vlanID         of a VLAN
//	bridgeName     the same as ifName, of bridges only
//	bridgeType     linux or ovs
//	vlanFiltering  whether a bridge tells VLANs apart
//
// Hardware:
//
//	pciAddress     its address on the bus: 0000:03:00.2
//	numaNode       the NUMA node that it is next to
//	vendor         PCI id, 15b3
//	product        PCI id, 101e
//	driver         of the kernel: mlx5_core, vfio-pci...
//	rdma           whether it has RDMA devices
//	rdmaDevice     the name of the first of them: mlx5_0
//	rdmaDevices    all names, as those of altNames: ",mlx5_0,"
//	rdmaLinkLayer  ethernet or infiniband, of the first
//	rdmaNetns      shared or exclusive, of devices with RDMA
//	portName       name of the port of the card: p0, pf0vf1...
//	switchID       the same for all ports of one switch in hardware
//	representor    whether it is the switch's end of the connection to a function
//
// Physical and virtual functions; vfMAC and those below it are what was set through the physical function, and as if
// absent where its driver does not say:
//
//	sriovCapable   whether it can have virtual functions
//	totalVFs       how many it can have
//	numVFs         how many it has
//	eswitchMode    legacy or switchdev
//	pfName         of a virtual function, the ifName of its physical function
//	pfAddress      and the PCI address of that
//	vfIndex        of a virtual function
//	vfMAC          address
//	vfVLAN         VLAN that its traffic is tagged with
//	vfQoS          priority in that tag
//	vfTrust        whether it may change its address and receive everything
//	vfSpoofCheck   whether it can only send from its own address
//	vfLinkState    auto, enable or disable
//	vfMinTxRate    in Mbit/s
//	vfMaxTxRate    in Mbit/s
//
// In other domains; drivers of other devices have them, too, so that a claim can match by them:
//
//	resource.kubernetes.io/pciBusID  the same as pciAddress
//	resource.kubernetes.io/numaNode  the same as numaNode
//	resource.kubernetes.io/pcieRoot  the PCI root complex
//	device.k8s.io/pcieRoot           the same, under its old name
func Attributes(d discovery.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, a := range vocabulary(&d) {
		attributes[a.name] = a.forAPI()
	}
	return attributes
}

// ownMAC is empty for an address that the device has from others.
func ownMAC(d *discovery.Device) string {
	if d.InheritedMAC {
		return ""
	}
	return d.MAC
}

// Published returns the attributes with which a device is published: those of AlwaysPublished, and of the others those
// that are facts of this device.
func Published(d discovery.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := slices.DeleteFunc(vocabulary(&d), func(a attribute) bool { return a.published == never })
	published := make(map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, len(attributes))
	for _, a := range attributes {
		published[a.name] = a.forAPI()
	}
	return published
}

// AlwaysPublished returns the names of the attributes that every published device has, if only as "" or 0. Selectors of
// device classes may read these, and no others, without a guard.
func AlwaysPublished() []resourceapi.QualifiedName {
	var names []resourceapi.QualifiedName
	for _, a := range vocabulary(&discovery.Device{}) {
		if a.published == always {
			names = append(names, a.name)
		}
	}
	return names
}

// text returns a string. One that no attribute can hold counts as absent.
func text[S ~string](s S) any {
	if len(s) > MaxString {
		return ""
	}
	return string(s)
}

// first returns the first of some names; empty if there is none.
func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// list returns a string with names that contains() finds: with a comma before and after each. It may be longer than a
// published one.
func list(names []string) any {
	if len(names) == 0 {
		return ""
	}
	return "," + strings.Join(names, ",") + ","
}

// number returns an integer.
func number(n int) any { return int64(n) }

// boolean returns a boolean.
func boolean(b bool) any { return b }
