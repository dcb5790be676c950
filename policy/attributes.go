package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// LegacyPCIeRoot is published in addition to the standard attribute resource.kubernetes.io/pcieRoot, with the same
	// value.
	LegacyPCIeRoot resourceapi.QualifiedName = "device.k8s.io/pcieRoot"
	// SupportedCNIs is the attribute that lists the CNI plugins of an entry. Usually it is a human-readable string with
	// a comma before and after each plugin, and classes use the booleans in v1alpha1.CNIDomain instead. In clusters
	// that support list attributes, it is a list: classes use the list, and the booleans are not published.
	SupportedCNIs resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/supportedCNIs"
	// RDMADevice is the attribute for the name of a device's first RDMA device. Monitoring tools use it to find the
	// device's counters. It is of little use in classes, since the same NIC has different names on different nodes.
	RDMADevice resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/rdmaDevice"
	// Type is the attribute for the device type.
	Type resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/type"
	// PFName is the attribute that associates virtual functions, and the bandwidth device for their link, with their
	// physical function.
	PFName resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/pfName"
	// ExposurePolicy is the attribute for the name of the policy that offers an entry. The controller uses it to count
	// the devices offered by each policy.
	ExposurePolicy resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/exposurePolicy"
)

const ownDomain resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/"

// AttributeMap maps attribute names to attributes.
type AttributeMap = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// MaxString is the maximum length of a string attribute, in bytes.
const MaxString = resourceapi.DeviceAttributeMaxValueLength

type attribute struct {
	name resourceapi.QualifiedName
	value
	published publication
}

// value is a string, an int64 or a bool.
type value struct {
	any
	// fact is true if the device has the attribute; otherwise, the value represents its absence. Only facts are
	// published. If absent values were published, two devices with an empty pfName would satisfy a matchAttribute
	// constraint.
	fact bool
}

func (a attribute) forAPI() resourceapi.DeviceAttribute {
	switch value := a.any.(type) {
	case string:
		value = strings.ToValidUTF8(value, "\ufffd") // as JSON does, so that the value survives a round trip
		return resourceapi.DeviceAttribute{StringValue: &value}
	case int64:
		return resourceapi.DeviceAttribute{IntValue: &value}
	case bool:
		return resourceapi.DeviceAttribute{BoolValue: &value}
	}
	// This is impossible: text, list, number and boolean return only values of these types.
	panic(fmt.Sprintf("attribute %s is a %T", a.name, a.any))
}

type publication int

const (
	// never is for attributes that only policies can read. They change whenever a cable is plugged in or a device
	// returns from a pod, so publishing them would cause a write for each change.
	never publication = iota
	// onRequest is for attributes that are published only if the device has them and a policy requests them.
	onRequest
	// whereFact is for attributes that are published for every device that has them.
	whereFact
	// always is for attributes that every device has.
	always
)

// publicationOf returns the conditions under which an attribute that an expression reads is published. It returns never
// if the attribute is not in the vocabulary.
func publicationOf(a access) publication {
	for _, known := range vocabulary(&discovery.Device{}) {
		if known.name == a.qualifiedName() && !a.capacity && !a.computed {
			return known.published
		}
	}
	return never
}

// vocabulary returns all attributes of a device: first the attributes in the driver's vocabulary, then the attributes
// from files on the node, sorted by name.
func vocabulary(d *discovery.Device) []attribute {
	all := discovered(d)
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		a := attribute{name: name, published: whereFact}
		switch v := d.Attributes[name]; {
		case v.StringValue != nil:
			a.value = value{*v.StringValue, true}
		case v.IntValue != nil:
			a.value = value{*v.IntValue, true}
		case v.BoolValue != nil:
			a.value = value{*v.BoolValue, true}
		default:
			continue // files contain no other types
		}
		all = append(all, a)
	}
	return all
}

// discovered returns the attributes in the driver's vocabulary. Each of them has a value on every device.
func discovered(d *discovery.Device) []attribute { return append(ofLink(d), ofHardware(d)...) }

func ofLink(d *discovery.Device) []attribute {
	return []attribute{
		{Type, text(d.Type), always},
		{ownDomain + "kind", text(d.Kind), onRequest},
		{ownDomain + "ifName", text(d.Name), always},
		{ownDomain + "interface", text(d.Interface), whereFact},
		{ownDomain + "altNames", list(d.AltNames), onRequest},
		{ownDomain + "mac", text(ownMAC(d)), whereFact},
		{ownDomain + "mtu", number(d.MTU, d.MTU > 0), whereFact},
		{ownDomain + "linkSpeed", number(d.LinkSpeed, d.LinkSpeed > 0), whereFact},
		{ownDomain + "operState", text(d.OperState), never},
		{ownDomain + "adminUp", boolean(d.AdminUp), never},
		{ownDomain + "carrier", boolean(d.Carrier), never},
		{ownDomain + "defaultRoute", boolean(d.DefaultRoute), never},
		{ownDomain + "masterBridge", text(d.Master), whereFact},
		{ownDomain + "masterKind", text(d.MasterKind), onRequest},
		{ownDomain + "parent", text(d.Parent), onRequest},
		{ownDomain + "vlanID", number(d.VLANID, d.VLANID >= 0), onRequest},
		{ownDomain + "bridgeName", text(d.BridgeName), whereFact},
		{ownDomain + "bridgeType", text(d.BridgeType), whereFact},
		{ownDomain + "vlanFiltering", optional(d.VLANFiltering, d.BridgeType != ""), whereFact},
	}
}

func ofHardware(d *discovery.Device) []attribute {
	vf, told := cmp.Or(d.Settings, &discovery.VFSettings{}), d.Settings != nil
	return []attribute{
		{ownDomain + "pciAddress", text(d.PCIAddress), whereFact},
		{ownDomain + "numaNode", number(d.NUMANode, d.NUMANode >= 0), whereFact},
		{ownDomain + "vendor", text(d.Vendor), whereFact},
		{ownDomain + "product", text(d.Product), whereFact},
		{ownDomain + "driver", text(d.Driver), whereFact},
		{ownDomain + "rdma", boolean(d.RDMA), always},
		{RDMADevice, text(first(d.RDMADevices)), whereFact},
		{ownDomain + "rdmaDevices", list(d.RDMADevices), onRequest},
		{ownDomain + "rdmaLinkLayer", text(d.RDMALinkLayer), onRequest},
		{ownDomain + "rdmaNetns", text(d.RDMANetns), onRequest},
		{ownDomain + "rdmaPortGUID", text(d.RDMAPort.GUID), onRequest},
		{ownDomain + "rdmaPortState", text(d.RDMAPort.State), never},
		{ownDomain + "rdmaRate", number(d.RDMAPort.Rate, d.RDMAPort.Rate > 0), onRequest},
		{ownDomain + "rdmaPKeys", list(d.RDMAPort.PKeys), onRequest},
		{ownDomain + "portName", text(d.PortName), onRequest},
		{ownDomain + "switchID", text(d.SwitchID), onRequest},
		{ownDomain + "representor", boolean(d.Representor), onRequest},

		{ownDomain + "sriovCapable", boolean(d.SRIOVCapable), always},
		{ownDomain + "totalVFs", number(d.TotalVFs, d.SRIOVCapable), onRequest},
		{ownDomain + "numVFs", number(d.NumVFs, d.SRIOVCapable), whereFact},
		{ownDomain + "eswitchMode", text(d.EswitchMode), onRequest},
		{PFName, text(d.PFName), whereFact},
		{ownDomain + "pfAddress", text(d.PFAddress), onRequest},
		{ownDomain + "vfIndex", number(d.VFIndex, d.VFIndex >= 0), whereFact},
		{ownDomain + "sfNumber", scalableNumber(d), whereFact},
		{ownDomain + "auxiliaryDevice", text(d.AuxiliaryDevice), whereFact},
		{ownDomain + "representorName", text(d.RepresentorName), onRequest},
		{ownDomain + "vfMAC", text(vf.MAC), onRequest},
		{ownDomain + "vfVLAN", number(vf.VLAN, told), onRequest},
		{ownDomain + "vfQoS", number(vf.QoS, told), onRequest},
		{ownDomain + "vfTrust", optional(vf.Trust, told), onRequest},
		{ownDomain + "vfSpoofCheck", optional(vf.SpoofCheck, told), onRequest},
		{ownDomain + "vfLinkState", text(vf.LinkState), onRequest},
		{ownDomain + "vfMinTxRate", number(vf.MinTxRate, told), onRequest},
		{ownDomain + "vfMaxTxRate", number(vf.MaxTxRate, told), onRequest},

		{LegacyPCIeRoot, text(d.PCIeRoot), whereFact},
		{deviceattribute.StandardDeviceAttributePCIeRoot, text(d.PCIeRoot), whereFact},
		{deviceattribute.StandardDeviceAttributePCIBusID, text(d.PCIAddress), whereFact},
		{deviceattribute.StandardDeviceAttributeNUMANode, number(d.NUMANode, d.NUMANode >= 0), whereFact},
	}
}

// Attributes returns the complete vocabulary for a device, for policy selectors. Names without a domain are in the
// domain of the driver. Every name has a value on every device: an absent string is "", an absent boolean false,
// vfIndex, sfNumber, numaNode and vlanID are -1 and other numbers 0.
//
// All devices:
//
//	type           pf, vf, sf, nic, bridge, vlan, bond, ovs-datapath, ovs-internal, bandwidth, or the link kind
//	kind           the kernel's link kind: device (hardware), bridge, vlan, bond, veth...
//	ifName         the device's name: <pf>v<index> for a virtual function, otherwise the interface name
//	interface      the kernel's current name of the interface; empty with userspace drivers
//	altNames       its alternative names, with a comma before and after each: altNames.contains(",data0,")
//	mac            its address, unless it uses the address of one of its ports
//	mtu            in bytes
//	linkSpeed      in Mbit/s, if known; not for bridges
//	operState      up, down, dormant, lower-layer-down...
//	adminUp        whether it was set up
//	carrier        whether the medium works
//	defaultRoute   whether the node's own traffic goes over it
//	masterBridge   its master: a bridge, bond, vrf...
//	masterKind     the kind of its master
//	parent         the lower link of a VLAN, macvlan...
//	vlanID         of a VLAN
//	bridgeName     the same as ifName, of bridges only
//	bridgeType     linux, or ovs on ovs-internal, which may be a bridge
//	vlanFiltering  whether a bridge filters VLANs
//
// Hardware:
//
//	pciAddress     its address on the bus: 0000:03:00.2
//	numaNode       the NUMA node that it is next to
//	vendor         PCI id, 15b3
//	product        PCI id, 101e
//	driver         of the kernel: mlx5_core, vfio-pci...
//	rdma           whether it has RDMA devices
//	rdmaDevice     the name of the first RDMA device: mlx5_0
//	rdmaDevices    all names, in the form of altNames: ",mlx5_0,"
//	rdmaLinkLayer  ethernet or infiniband, of the first
//	rdmaNetns      shared or exclusive, of devices with RDMA
//	rdmaPortGUID   of an InfiniBand port of the first RDMA device: 0x0002c90300a1b2c3
//	rdmaPortState  down, init, armed, active...
//	rdmaRate       of this port in Gbit/s, if it is not down; for Ethernet ports of virtual functions, see linkSpeed
//	rdmaPKeys      its InfiniBand partition keys, in the form of altNames: ",0x7fff,0x8001,"
//	portName       name of the NIC's port: p0, pf0vf1...
//	switchID       the same for all ports of one switch in hardware
//	representor    whether it is the switch's end of the connection to a function
//
// Physical, virtual and scalable functions; vfMAC and the attributes below it are settings of the physical function.
// They are absent if its driver does not report them:
//
//	sriovCapable   whether it can have virtual functions
//	totalVFs       how many it can have
//	numVFs         how many it has
//	eswitchMode    legacy or switchdev
//	pfName         of a virtual or scalable function or of bandwidth, the ifName of the physical function
//	pfAddress      the PCI address of its physical function
//	vfIndex        of a virtual function
//	sfNumber       of a scalable function, as the administrator numbered it
//	auxiliaryDevice  of a scalable function, its name on the auxiliary bus: mlx5_core.sf.2
//	representorName  of a virtual or scalable function, the interface of its representor on the host
//	vfMAC          address
//	vfVLAN         VLAN that its traffic is tagged with
//	vfQoS          priority in that tag
//	vfTrust        whether it may change its address and receive everything
//	vfSpoofCheck   whether it can only send from its own address
//	vfLinkState    auto, enable or disable
//	vfMinTxRate    in Mbit/s
//	vfMaxTxRate    in Mbit/s
//
// In other domains; drivers of other devices publish them, too, so that claims can match on them:
//
//	resource.kubernetes.io/pciBusID  the same as pciAddress
//	resource.kubernetes.io/numaNode  the same as numaNode
//	resource.kubernetes.io/pcieRoot  the PCI root complex
//	device.k8s.io/pcieRoot           the same, under its old name
func Attributes(d discovery.Device) AttributeMap {
	attributes := AttributeMap{}
	for _, a := range vocabulary(&d) {
		attributes[a.name] = a.forAPI()
	}
	return attributes
}

// ownMAC returns a device's MAC address, or "" if the device uses another device's address.
func ownMAC(d *discovery.Device) string {
	if d.InheritedMAC {
		return ""
	}
	return d.MAC
}

// Published returns the attributes to be published for a device: facts that are published for every device, and facts
// that a policy requests by name (without the driver's domain). It omits attributes that the device does not have.
func Published(d discovery.Device, requested ...string) AttributeMap {
	return publishedOf(&d, requested, func(a attribute) bool { return a.fact || a.published == always })
}

// PublishedWithAbsent is like Published, but also includes attributes that the device does not have, with the value
// that represents their absence. Templates in topologies use it, since one configuration may apply to several kinds of
// devices.
func PublishedWithAbsent(d discovery.Device, requested ...string) AttributeMap {
	return publishedOf(&d, requested, func(attribute) bool { return true })
}

// publishedOf returns the wanted attributes that are published, either by default or because they are in requested.
func publishedOf(d *discovery.Device, requested []string, wanted func(attribute) bool) AttributeMap {
	attributes := AttributeMap{}
	for _, a := range vocabulary(d) {
		id := strings.TrimPrefix(string(a.name), string(ownDomain))
		published := a.published >= whereFact || a.published == onRequest && slices.Contains(requested, id)
		if published && wanted(a) {
			attributes[a.name] = a.forAPI()
		}
	}
	return attributes
}

func named(p publication) []resourceapi.QualifiedName {
	var names []resourceapi.QualifiedName
	for _, a := range vocabulary(&discovery.Device{}) {
		if a.published == p {
			names = append(names, a.name)
		}
	}
	return names
}

// AlwaysPublished returns the names of the attributes that every published device has. Selectors in claims and in
// user-written classes must guard accesses to all other attributes.
func AlwaysPublished() []resourceapi.QualifiedName { return named(always) }

// PublishedWhereFact returns the names of the attributes that are published for every device that has them.
func PublishedWhereFact() []resourceapi.QualifiedName { return named(whereFact) }

// PublishedOnRequest returns the names of the attributes that are published only on request: the policy that exposes a
// device must request the attribute, and the device must have it.
func PublishedOnRequest() []resourceapi.QualifiedName { return named(onRequest) }

// Identifying returns the names of the attributes that differ even between identical machines: addresses, GUIDs and NIC
// serial numbers. All other published attributes have the same values on identical hardware with the same
// configuration.
func Identifying() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{ownDomain + "altNames", ownDomain + "mac", ownDomain + "rdmaPortGUID",
		ownDomain + "switchID", ownDomain + "vfMAC"}
}

// text returns a string attribute. The attribute is absent if the string is empty or too long.
func text[S ~string](s S) value {
	if len(s) > MaxString {
		return value{"", false}
	}
	return value{string(s), s != "" && holdable(string(s))}
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// list returns the names as a string that can be searched with contains(), with a comma before and after each name.
// Policies can read lists of any length, but a list that does not fit into an attribute is not published.
func list(names []string) value {
	if len(names) == 0 {
		return value{"", false}
	}
	joined := "," + strings.Join(names, ",") + ","
	return value{joined, holdable(joined)}
}

// holdable reports whether a string can be the value of an attribute. The kernel accepts names that are not valid
// UTF-8, even if a pod sets them on its interface. In JSON, each invalid byte becomes three bytes, and the API server
// rejects a whole slice if a single value is too long.
func holdable(s string) bool { return len(s) <= MaxString && utf8.ValidString(s) }

// number returns an integer attribute; fact reports whether the device has it.
func number(n int, fact bool) value { return value{int64(n), fact} }

func scalableNumber(d *discovery.Device) value {
	if d.AuxiliaryDevice == "" {
		return number(discovery.None, false)
	}
	return number(d.SFNumber, d.SFNumber >= 0)
}

// boolean returns a boolean attribute, which is a fact even if it is false.
func boolean(b bool) value { return value{b, true} }

// optional returns a boolean attribute that only some devices have; fact reports whether the device has it.
func optional(b, fact bool) value { return value{b, fact} }
