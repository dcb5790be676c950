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

// Device types. All other devices use the kernel's link kind as their type: veth, macvlan, dummy...
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
	// TypeOVSDatapath is Open vSwitch's kernel datapath, ovs-system. It is the master of all ports on all Open vSwitch
	// bridges, but is not a bridge itself.
	TypeOVSDatapath = "ovs-datapath"
	// TypeOVSInternal is an internal port of Open vSwitch. Each Open vSwitch bridge has an internal port with the
	// bridge's name. The kernel does not distinguish that port from other internal ports, such as the OVN-Kubernetes
	// management port: only the Open vSwitch database does.
	TypeOVSInternal = "ovs-internal"
)

// None is the value of NUMANode, VFIndex, VLANID and SFNumber for devices that have no such number.
const None = -1

// The modes of a physical function's embedded switch. In switchdev mode, each virtual function has a representor.
const (
	EswitchLegacy    = "legacy"
	EswitchSwitchdev = "switchdev"
)

// The network namespace modes for RDMA devices: either all network namespaces can use all devices, or each device
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

// Facts contains all known properties of a node's network devices at a given point in time.
type Facts struct {
	// Devices is sorted by name; names are unique.
	Devices []Device `json:"devices"`
	// Orphans contains virtual functions that have no name, either because their physical function's interface is not
	// in this network namespace, or because the physical function does not report their index (VFIndex is then None,
	// and there is a problem). The With method names orphans of the first kind if it is given a snapshot of their
	// physical function.
	Orphans []Device `json:"orphans,omitempty"`
	// Problems describes the facts that are unreadable or inconsistent, in sorted order. These facts are treated as
	// absent. A problem affects a single fact about a device or, if its message says so, the whole device.
	Problems []Problem `json:"problems,omitempty"`
}

// Device is a network device: a link, a PCI network function, or both.
type Device struct {
	// Name identifies the device on its node. The name of a virtual function is always <pf>v<index>, regardless of the
	// name and location of its interface; every other device is named after its interface.
	Name IfName `json:"name"`
	// Interface is the link's current name in the node's network namespace. It is empty if there is no such link, for
	// example when a virtual function is inside a pod or bound to a userspace driver.
	Interface IfName `json:"interface"`
	// AltNames lists the link's alternative names in sorted order.
	AltNames []string `json:"altNames,omitempty"`
	// Kind is the kernel's link kind (veth, bridge...), "device" for hardware links, or empty if the device has no
	// link.
	Kind string `json:"kind"`
	// Type is the type of the device: one of the Type constants, or else the link kind.
	Type string `json:"type"`
	MAC  string `json:"mac"`
	// InheritedMAC is true if the address is not the link's own: unless its address was set explicitly, a bridge uses
	// the address of one of its ports, and may change its address when ports are added or removed.
	InheritedMAC bool `json:"inheritedMAC,omitempty"`
	MTU          int  `json:"mtu"`
	// LinkSpeed is in Mbit/s. It is 0 for bridges and if the speed is unknown.
	LinkSpeed int `json:"linkSpeed"`
	// LinkType is the hardware type that ip(8) prints after "link/", or empty for Ethernet: infiniband, none, can...
	LinkType string `json:"linkType,omitempty"`
	// Immovable is true if the kernel refuses to move the link to another network namespace, as for bridges and bonds.
	Immovable bool `json:"immovable,omitempty"`
	// OperState is the RFC 2863 state, as named by the netlink library: up, down, dormant... It is empty if there is no
	// link.
	OperState string `json:"operState"`
	AdminUp   bool   `json:"adminUp"`
	Carrier   bool   `json:"carrier"`

	// PCIAddress is empty unless the device is a PCI function or its main interface.
	PCIAddress PCIAddress `json:"pciAddress"`
	// SharedFunction is true if several of the node's interfaces are ports of the same PCI function, as with
	// ConnectX-3. The function's address does not uniquely identify any of these interfaces. PCIAddress is set only for
	// the first one.
	SharedFunction bool `json:"sharedFunction,omitempty"`
	// PCIeRoot is the root complex above the device, for example pci0000:00.
	PCIeRoot string `json:"pcieRoot"`
	// NUMANode is None if the hardware has no NUMA affinity.
	NUMANode int `json:"numaNode"`
	// NUMANodes is NUMANode, followed by the other nodes in the same socket at the same distance, in ascending order.
	// It is nil if no other such nodes exist, or if the machine does not report distances.
	NUMANodes []int `json:"numaNodes,omitempty"`
	// Vendor and Product are PCI IDs: four hexadecimal digits.
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	// Driver is the kernel driver that the hardware is bound to.
	Driver string `json:"driver"`
	// RDMA is true if the device has any RDMA devices. If a function's RDMA devices are in another network namespace,
	// their names are unknown.
	RDMA bool `json:"rdma"`
	// RDMADevices contains the sorted names of all RDMA devices, for example mlx5_0, that belong to the PCI function,
	// have a port on the link, or belong to a member of the bond. The same RDMA device can therefore be listed for
	// several devices.
	RDMADevices []string `json:"rdmaDevices,omitempty"`
	// RDMALinkLayer is the link layer of the first of RDMADevices: RDMAEthernet or RDMAInfiniBand. It is empty if the
	// kernel does not report it.
	RDMALinkLayer string `json:"rdmaLinkLayer,omitempty"`
	// RDMAPort describes a port of the first of RDMADevices: the link's port if the RDMA device has several, otherwise
	// the first port. It is empty if the RDMA device is in another network namespace.
	RDMAPort RDMAPort `json:"rdmaPort,omitzero"`
	// RDMANetns is the network namespace mode for RDMA devices: RDMAShared or RDMAExclusive. It is only set on devices
	// with RDMA, and has the same value on all of them. It is empty if the kernel does not report it.
	RDMANetns string `json:"rdmaNetns,omitempty"`

	// PortName is the name of the link's hardware port (phys_port_name): p0, pf0vf1... Most drivers leave it empty.
	PortName string `json:"portName,omitempty"`
	// SwitchID identifies the hardware switch that the link is a port of (phys_switch_id). It is empty for other links.
	SwitchID string `json:"switchID,omitempty"`
	// RepresentorName is the name of the link that represents a virtual or scalable function in the switch. It is empty
	// if there is no such link on the host.
	RepresentorName IfName `json:"representorName,omitempty"`
	// Representor is true if the link represents a function in the switch (a port in switchdev mode), as opposed to
	// being the function's own interface.
	Representor bool `json:"representor,omitempty"`

	// SRIOVCapable is true if the function supports virtual functions: TotalVFs > 0.
	SRIOVCapable bool `json:"sriovCapable"`
	TotalVFs     int  `json:"totalVFs"`
	NumVFs       int  `json:"numVFs"`
	// EswitchMode is the mode of a physical function's embedded switch: EswitchLegacy or EswitchSwitchdev. It is empty
	// if there is no such switch, no devlink, or no privilege to query it (CAP_NET_ADMIN).
	EswitchMode string `json:"eswitchMode,omitempty"`
	// PFName and PFAddress are only set for virtual and scalable functions.
	PFName    IfName     `json:"pfName"`
	PFAddress PCIAddress `json:"pfAddress"`
	// VFIndex is None for all devices except virtual functions.
	VFIndex int `json:"vfIndex"`
	// AuxiliaryDevice is a scalable function's name on the auxiliary bus, for example mlx5_core.sf.2. Plugins use it to
	// identify the function. It is empty for all other devices.
	AuxiliaryDevice string `json:"auxiliaryDevice,omitempty"`
	// SFNumber is the number that the administrator assigned to a scalable function (devlink port add ... sfnum). It is
	// None if the driver does not report the number, and undefined for all other devices.
	SFNumber int `json:"sfNumber,omitempty"`
	// Attributes contains the attributes that files on the node assign to the device. They are never in the driver's
	// domain. Read leaves the field empty; package nodeattributes sets it. The map must not be modified.
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	// Settings contains the settings that the physical function stores for a virtual function. It is nil if the
	// physical function's interface is not on the host, or if its driver does not report them.
	Settings *VFSettings `json:"settings,omitempty"`

	// BridgeName, BridgeType ("linux") and VLANFiltering are set for bridges. BridgeName and BridgeType ("ovs") are
	// also set for internal ports of Open vSwitch, which may be bridges: see TypeOVSInternal.
	BridgeName    IfName `json:"bridgeName"`
	BridgeType    string `json:"bridgeType"`
	VLANFiltering bool   `json:"vlanFiltering"`
	// Master is the link that this link is enslaved to. It can be of any kind (MasterKind): bridge, bond, vrf...
	Master     IfName `json:"master"`
	MasterKind string `json:"masterKind"`
	// Parent is the lower device of a VLAN, macvlan, ipvlan..., if that device is in the same network namespace.
	Parent IfName `json:"parent"`
	// VLANID is None for all devices except VLANs.
	VLANID int `json:"vlanID"`
	// DefaultRoute is true if the device carries a default route in the main table or an address of the node, or if it
	// is a bridge port, bond member or parent below such a device.
	DefaultRoute bool `json:"defaultRoute"`
}

// VFSettings contains the settings that a physical function stores for a virtual function, as set with "ip link set PF
// vf INDEX". The user of the virtual function cannot change them.
type VFSettings struct {
	// MAC is empty if none was set.
	MAC string `json:"mac,omitempty"`
	// VLAN is the VLAN ID that the function's traffic is tagged with, and QoS is the priority in the tag. VLAN is 0 if
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
	// Device is the name or PCI address of the affected device, or empty if the problem affects the whole node.
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

// With returns the facts with each discovered device replaced by the snapshot that has the same identity, if any. A
// device's identity is its PCI address or, if it has none, its name. Snapshots of devices that were not discovered are
// added. With is used to publish devices unchanged while they are in use in pods, where discovery cannot see them. It
// does not modify the receiver or the snapshots.
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

// keepNames restores the names of a renamed physical function and its virtual functions. The physical function gets
// back the name it had when one of its virtual functions was allocated, because exclusions depend on this name as long
// as that virtual function is in use. Functions whose names are restored are also treated as being in use.
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

// add adds devices to the facts, sorted by name. If several devices have the same name, a device in use takes
// precedence, then a PCI function; the others are omitted and reported as problems.
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
		if a.Name != b.Name { // true for nearly all pairs, and computing ranks is more expensive
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

// adopt names the virtual functions that have an index and whose physical function is one of the devices. A physical
// function that is bound to a userspace driver cannot apply settings to its virtual functions.
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

// withPF returns the device with pf as its physical function. A virtual function is also renamed after pf; a scalable
// function keeps the name of its interface.
func (d Device) withPF(pf IfName) Device {
	d.PFName = pf
	if d.AuxiliaryDevice == "" {
		d.Name = IfName(fmt.Sprintf("%sv%d", pf, d.VFIndex))
	}
	return d
}
