package discovery

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery/rdmalink"
)

// IfName is the name of a network device on the node.
type IfName string

// PCIAddress is the address of a PCI function in the format used by sysfs, for example 0000:03:00.2.
type PCIAddress string

// The types of devices. For any other device, the type is the kernel's link kind: veth, macvlan, dummy...
const (
	TypeVF     = "vf"
	TypePF     = "pf"
	TypeBridge = "bridge"
	TypeVLAN   = "vlan"
	TypeBond   = "bond"
	TypeNIC    = "nic"
	// TypeSF is a scalable function (subfunction): a part of a physical function that is a device on the kernel's
	// auxiliary bus, with an interface of its own but without a PCI address.
	TypeSF = "sf"
	// TypeOVSDatapath is the kernel part of Open vSwitch, ovs-system. It is the master of all ports on all Open vSwitch
	// bridges, but is not a bridge itself.
	TypeOVSDatapath = "ovs-datapath"
	// TypeOVSInternal is an internal port of Open vSwitch. Each Open vSwitch bridge has an internal port with the
	// bridge's name. The kernel does not distinguish it from other internal ports, such as the OVN-Kubernetes
	// management port: only the Open vSwitch database does.
	TypeOVSInternal = "ovs-internal"
)

// None is the value of NUMANode, VFIndex, VLANID and SFNumber for a device without such a number.
const None = -1

// The modes of the switch in a physical function. In switchdev mode, each virtual function has a representor.
const (
	EswitchLegacy    = "legacy"
	EswitchSwitchdev = "switchdev"
)

// The network namespace modes of RDMA devices: either every network namespace can use all devices, or each device
// belongs to one namespace.
const (
	RDMAShared    = rdmalink.Shared
	RDMAExclusive = rdmalink.Exclusive
)

// The link layers of RDMA devices.
const (
	RDMAEthernet   = "ethernet"
	RDMAInfiniBand = "infiniband"
)

// Facts contains all known properties of a node's network devices at a point in time.
type Facts struct {
	// Devices contains the devices, sorted by name; names are unique.
	Devices []Device `json:"devices"`
	// Orphans contains virtual functions without a name, either because the interface of their physical function is not
	// in this network namespace, or because that function does not report their index (VFIndex is None, and there is a
	// problem). The With method names orphans of the first kind when it gets a snapshot of their physical function.
	Orphans []Device `json:"orphans,omitempty"`
	// Problems contains the facts that are unreadable or inconsistent, sorted. These facts are treated as absent. A
	// problem affects a single fact about a device or, if its text says so, the whole device.
	Problems []Problem `json:"problems,omitempty"`
}

// Device is a network device: a link, a PCI network function, or both.
type Device struct {
	// Name identifies the device on its node. The name of a virtual function is always <pf>v<index>, regardless of the
	// name and location of its interface; every other device has the name of its interface.
	Name IfName `json:"name"`
	// Interface is the link's current name in the node's network namespace. It is empty if there is no such link, for
	// example when a virtual function is inside a pod or bound to a userspace driver.
	Interface IfName `json:"interface"`
	// AltNames contains the link's alternative names, sorted.
	AltNames []string `json:"altNames,omitempty"`
	// Kind is the kernel's link kind (veth, bridge...), "device" for hardware links, or empty if there is no link.
	Kind string `json:"kind"`
	// Type is the type of the device: one of the Type constants, or else the link kind.
	Type string `json:"type"`
	MAC  string `json:"mac"`
	// InheritedMAC is true if the address is not the link's own: unless an address was set, a bridge uses the address
	// of one of its ports, so its address changes with its ports.
	InheritedMAC bool `json:"inheritedMAC,omitempty"`
	MTU          int  `json:"mtu"`
	// LinkSpeed is in Mbit/s; 0 if unknown, and for bridges.
	LinkSpeed int `json:"linkSpeed"`
	// LinkType is the hardware type as printed by ip(8) after "link/" if it is not Ethernet: infiniband, none, can...
	LinkType string `json:"linkType,omitempty"`
	// Immovable is true if the kernel refuses to move the link to another network namespace, as for bridges and bonds.
	Immovable bool `json:"immovable,omitempty"`
	// OperState is the RFC 2863 state as printed by netlink: up, down, dormant... It is empty without a link.
	OperState string `json:"operState"`
	AdminUp   bool   `json:"adminUp"`
	Carrier   bool   `json:"carrier"`

	// PCIAddress is empty unless the device is a PCI function or its main interface.
	PCIAddress PCIAddress `json:"pciAddress"`
	// SharedFunction is true if several interfaces of the node are ports of one PCI function, as with ConnectX-3. The
	// function's address does not identify any of these interfaces. PCIAddress is set only for the first interface.
	SharedFunction bool `json:"sharedFunction,omitempty"`
	// PCIeRoot is the root complex above the device, for example pci0000:00.
	PCIeRoot string `json:"pcieRoot"`
	// NUMANode is None if the hardware has no affinity.
	NUMANode int `json:"numaNode"`
	// NUMANodes contains NUMANode, followed by the other nodes in its socket at the same distance, in ascending order.
	// It is nil if there are no others, or if the machine does not report distances.
	NUMANodes []int `json:"numaNodes,omitempty"`
	// Vendor and Product are PCI IDs: four hexadecimal digits.
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	// Driver is the kernel driver to which the hardware is bound.
	Driver string `json:"driver"`
	// RDMA is true if the device has RDMA devices. A function's RDMA devices may be in another network namespace; their
	// names are then unknown.
	RDMA bool `json:"rdma"`
	// RDMADevices contains the names of the RDMA devices, for example mlx5_0, sorted: those of the PCI function, those
	// with a port on the link, and those of a bond's members. Several devices can therefore share an RDMA device.
	RDMADevices []string `json:"rdmaDevices,omitempty"`
	// RDMALinkLayer is the link layer of the first of RDMADevices: RDMAEthernet or RDMAInfiniBand. It is empty if the
	// kernel does not report it.
	RDMALinkLayer string `json:"rdmaLinkLayer,omitempty"`
	// RDMANetns is the network namespace mode of RDMA devices: RDMAShared or RDMAExclusive. It is only set on devices
	// with RDMA, and is the same for all of these devices on a node. It is empty if the kernel does not report it.
	RDMANetns string `json:"rdmaNetns,omitempty"`

	// PortName is the name of the link's hardware port (phys_port_name): p0, pf0vf1... Most drivers leave it empty.
	PortName string `json:"portName,omitempty"`
	// SwitchID is the same for all links that are ports of the same hardware switch (phys_switch_id). It is empty for
	// other links.
	SwitchID string `json:"switchID,omitempty"`
	// RepresentorName is the name of the link that is the switch's end of the connection to a virtual or scalable
	// function. It is empty if there is no such link on the host.
	RepresentorName IfName `json:"representorName,omitempty"`
	// Representor is true if the link is the switch's end of the connection to a function (a port in switchdev mode),
	// as opposed to the function's own interface.
	Representor bool `json:"representor,omitempty"`

	// SRIOVCapable is true if the function supports virtual functions: TotalVFs > 0.
	SRIOVCapable bool `json:"sriovCapable"`
	TotalVFs     int  `json:"totalVFs"`
	NumVFs       int  `json:"numVFs"`
	// EswitchMode is the mode of the switch in a physical function: EswitchLegacy or EswitchSwitchdev. It is empty if
	// there is no such switch, no devlink, or no privilege to query it (CAP_NET_ADMIN).
	EswitchMode string `json:"eswitchMode,omitempty"`
	// PFName and PFAddress are only set for virtual and scalable functions.
	PFName    IfName     `json:"pfName"`
	PFAddress PCIAddress `json:"pfAddress"`
	// VFIndex is None for all devices except virtual functions.
	VFIndex int `json:"vfIndex"`
	// AuxiliaryDevice is the name of a scalable function on the auxiliary bus, for example mlx5_core.sf.2, which
	// plugins use to identify it. It is empty for all other devices.
	AuxiliaryDevice string `json:"auxiliaryDevice,omitempty"`
	// SFNumber is the number that the administrator assigned to a scalable function (devlink port add ... sfnum). It is
	// None if the driver does not report it, and undefined for all other devices.
	SFNumber int `json:"sfNumber,omitempty"`
	// Attributes contains the attributes that files on the node assign to the device. These attributes are never in the
	// driver's domain. Read leaves it empty; package nodeattributes sets it. The map must not be modified.
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	// Settings contains the settings of a virtual function that are stored in its physical function. It is nil if the
	// interface of the physical function is not on the host, or if its driver does not report them.
	Settings *VFSettings `json:"settings,omitempty"`

	// BridgeName, BridgeType ("linux") and VLANFiltering are set for bridges. The first two are also set, with "ovs",
	// for internal ports of Open vSwitch, which may be bridges: see TypeOVSInternal.
	BridgeName    IfName `json:"bridgeName"`
	BridgeType    string `json:"bridgeType"`
	VLANFiltering bool   `json:"vlanFiltering"`
	// Master is the link to which this link is enslaved, of any kind (MasterKind): bridge, bond, vrf...
	Master     IfName `json:"master"`
	MasterKind string `json:"masterKind"`
	// Parent is the lower device of a VLAN, macvlan, ipvlan..., if it is in the same network namespace.
	Parent IfName `json:"parent"`
	// VLANID is None for all devices except VLANs.
	VLANID int `json:"vlanID"`
	// DefaultRoute is true if the device carries a default route in the main table or an address of the node, or if it
	// is below such a device as its bridge port, bond member or parent.
	DefaultRoute bool `json:"defaultRoute"`
}

// VFSettings contains the settings of a virtual function that are stored in its physical function, as set with "ip link
// set PF vf INDEX". The user of the virtual function cannot change them.
type VFSettings struct {
	// MAC is empty if none was set.
	MAC string `json:"mac,omitempty"`
	// VLAN is the VLAN ID with which the function's traffic is tagged, and QoS is the priority in the tag. VLAN is 0 if
	// the traffic is untagged.
	VLAN int `json:"vlan"`
	QoS  int `json:"qos"`
	// Trust allows the function to change its address and to receive frames for other addresses.
	Trust bool `json:"trust"`
	// SpoofCheck is true if frames with source addresses other than the function's own are dropped, or if the driver
	// does not report it.
	SpoofCheck bool `json:"spoofCheck"`
	// LinkState is auto (follows the physical function), enable or disable.
	LinkState string `json:"linkState"`
	// MinTxRate and MaxTxRate are in Mbit/s; 0 means no limit.
	MinTxRate int `json:"minTxRate"`
	MaxTxRate int `json:"maxTxRate"`
}

// Problem describes a fact that could not be read.
type Problem struct {
	// Device is the name or PCI address of the device with the problem, or empty if the problem concerns the node.
	Device  string `json:"device,omitempty"`
	Message string `json:"message"`
}

// String returns the problem on one line.
func (p Problem) String() string {
	if p.Device == "" {
		return p.Message
	}
	return fmt.Sprintf("%s: %s", p.Device, p.Message)
}

// With returns the facts with the discovered devices replaced by the snapshots that have the same identity. The
// identity is the PCI address or, if there is none, the name. A snapshot of a device that was not discovered is added.
// With is used to publish devices unchanged while they are in use in pods, where discovery cannot see them. The
// receiver and the snapshots are not changed.
func (f Facts) With(snapshots ...Device) Facts {
	devices := map[string]Device{}
	for _, d := range f.Devices {
		devices[d.identity()] = d
	}
	for _, d := range snapshots {
		devices[d.identity()] = d
	}
	inUse := identities(snapshots)
	keepNames(devices, snapshots, inUse)
	named, orphans := adopt(f.Orphans, devices)
	for _, d := range named {
		if _, ok := devices[d.identity()]; !ok {
			devices[d.identity()] = d
		}
	}
	nameParents(devices)
	union := Facts{Orphans: orphans, Problems: slices.Clone(f.Problems)}
	union.add(devices, inUse)
	return union
}

// keepNames restores the names of a renamed physical function and its virtual functions. The physical function gets the
// name that it had when one of the virtual functions was allocated, because exclusions depend on this name while that
// virtual function is in use. Functions whose names are restored are also treated as in use.
func keepNames(devices map[string]Device, snapshots []Device, inUse map[string]bool) {
	for _, snapshot := range snapshots {
		pf, known := devices[Device{PCIAddress: snapshot.PFAddress}.identity()]
		if snapshot.PFAddress == "" || snapshot.PFName == "" || !known || pf.Name == snapshot.PFName {
			continue
		}
		pf.Name = snapshot.PFName
		devices[pf.identity()], inUse[pf.identity()] = pf, true
		for id, vf := range devices {
			if vf.PFAddress == pf.PCIAddress {
				devices[id], inUse[id] = vf.withPF(pf.Name), true
			}
		}
	}
}

// identity identifies a device across scans.
func (d Device) identity() string {
	if d.PCIAddress != "" {
		return "pci/" + string(d.PCIAddress)
	}
	return "name/" + string(d.Name)
}

// identities returns the set of identities of devices.
func identities(devices []Device) map[string]bool {
	set := map[string]bool{}
	for _, d := range devices {
		set[d.identity()] = true
	}
	return set
}

// add adds devices to the facts, sorted by name. If several devices have the same name, devices in use take precedence,
// followed by PCI functions; the others are omitted and reported as problems.
func (f *Facts) add(devices map[string]Device, inUse map[string]bool) {
	sorted := make([]*Device, 0, len(devices))
	for _, d := range devices {
		sorted = append(sorted, &d)
	}
	rank := func(d *Device) int {
		switch {
		case inUse[d.identity()]:
			return 0
		case d.PCIAddress != "":
			return 1
		}
		return 2
	}
	slices.SortFunc(sorted, func(a, b *Device) int {
		if a.Name != b.Name { // true for nearly all pairs; ranks are more expensive to compute
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.PCIAddress, b.PCIAddress))
	})
	f.Devices = slices.Grow(f.Devices, len(sorted))
	for _, d := range sorted {
		if n := len(f.Devices); n > 0 && f.Devices[n-1].Name == d.Name {
			f.Problems = append(f.Problems, Problem{Device: string(d.Name), Message: fmt.Sprintf(
				"cannot distinguish two devices: interface %q (PCI %q) is ignored because PCI function %q has the "+
					"same name; rename the interface",
				d.Interface, d.PCIAddress, f.Devices[n-1].PCIAddress)})
			continue
		}
		f.Devices = append(f.Devices, *d)
	}
}

// adopt names the virtual functions that have an index and whose physical function is among the devices. A physical
// function that is bound to a userspace driver cannot apply the settings of its virtual functions.
func adopt(orphans []Device, devices map[string]Device) (named, left []Device) {
	named = make([]Device, 0, len(orphans))
	for _, vf := range orphans {
		pf, ok := devices[Device{PCIAddress: vf.PFAddress}.identity()]
		if !ok || vf.VFIndex == None || drivesFromUserspace(pf.Driver) {
			left = append(left, vf)
			continue
		}
		named = append(named, vf.withPF(pf.Name))
	}
	return named, left
}

// withPF returns the function as a function of pf. A virtual function is also named after pf; a scalable function has
// the name of its interface.
func (d Device) withPF(pf IfName) Device {
	d.PFName = pf
	if d.AuxiliaryDevice == "" {
		d.Name = IfName(fmt.Sprintf("%sv%d", pf, d.VFIndex))
	}
	return d
}
