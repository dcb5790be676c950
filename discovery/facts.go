package discovery

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/discovery/rdmalink"
)

// IfName is the name of a network device on the node.
type IfName string

// PCIAddress is the address of a PCI function in the format of sysfs, for example 0000:03:00.2.
type PCIAddress string

// Types of devices. Any other device has the kernel's link kind as its type: veth, macvlan, dummy...
const (
	TypeVF     = "vf"
	TypePF     = "pf"
	TypeBridge = "bridge"
	TypeVLAN   = "vlan"
	TypeBond   = "bond"
	TypeNIC    = "nic"
	// TypeOVSDatapath is the kernel's part of Open vSwitch, ovs-system: the master of all ports of all its bridges, but
	// not itself a bridge.
	TypeOVSDatapath = "ovs-datapath"
	// TypeOVSInternal is an internal port of Open vSwitch. Each bridge of Open vSwitch has an internal port with the
	// bridge's name. The kernel does not distinguish it from other internal ports, such as OVN-Kubernetes' management
	// port: only the database of Open vSwitch does.
	TypeOVSInternal = "ovs-internal"
)

// None is the value of NUMANode, VFIndex and VLANID for a device without such a number.
const None = -1

// Modes of the switch in a physical function. In switchdev mode each virtual function has a representor.
const (
	EswitchLegacy    = "legacy"
	EswitchSwitchdev = "switchdev"
)

// Network namespace modes of RDMA devices: every network namespace uses all devices, or each device belongs to one
// namespace.
const (
	RDMAShared    = rdmalink.Shared
	RDMAExclusive = rdmalink.Exclusive
)

// Link layers of RDMA devices.
const (
	RDMAEthernet   = "ethernet"
	RDMAInfiniBand = "infiniband"
)

// Facts contains all known properties of the network devices of a node at one time.
type Facts struct {
	// Devices are sorted by name; names are unique.
	Devices []Device `json:"devices"`
	// Orphans are virtual functions without a name, because the interface of their physical function is not in this
	// network namespace, or because that function does not report their index (VFIndex is None, and there is a
	// problem). With names orphans of the first kind if it gets a snapshot of that function.
	Orphans []Device `json:"orphans,omitempty"`
	// Problems are unreadable or inconsistent facts, sorted. Such a fact counts as absent: usually one fact of a
	// device, or the whole device if the problem says so.
	Problems []Problem `json:"problems,omitempty"`
}

// Device is one network device: a link, a PCI network function, or both.
type Device struct {
	// Name identifies the device on its node. A virtual function is always <pf>v<index>, regardless of the name and
	// location of its interface; every other device has the name of its interface.
	Name IfName `json:"name"`
	// Interface is the link's current name in the node's network namespace. It is empty if there is no such link, for
	// example when a virtual function is inside a pod or bound to a userspace driver.
	Interface IfName `json:"interface"`
	// AltNames are the link's alternative names, sorted.
	AltNames []string `json:"altNames,omitempty"`
	// Kind is the kernel's link kind (veth, bridge...); "device" for links of hardware, empty without a link.
	Kind string `json:"kind"`
	// Type is the type of the device, one of the Type constants.
	Type string `json:"type"`
	MAC  string `json:"mac"`
	// InheritedMAC is true if the address is not the link's own: a bridge uses the address of one of its ports unless
	// an address was set, and the address changes with its ports.
	InheritedMAC bool `json:"inheritedMAC,omitempty"`
	MTU          int  `json:"mtu"`
	// LinkSpeed is in Mbit/s; 0 if unknown, and for bridges.
	LinkSpeed int `json:"linkSpeed"`
	// OperState is the state of RFC 2863 as printed by netlink: up, down, dormant... Empty without a link.
	OperState string `json:"operState"`
	AdminUp   bool   `json:"adminUp"`
	Carrier   bool   `json:"carrier"`

	// PCIAddress is empty for devices that are not a PCI function or its main interface.
	PCIAddress PCIAddress `json:"pciAddress"`
	// PCIeRoot is the root complex above the device, for example pci0000:00.
	PCIeRoot string `json:"pcieRoot"`
	// NUMANode is None if the hardware has no affinity.
	NUMANode int `json:"numaNode"`
	// NUMANodes contains NUMANode and then the other nodes of its socket at the same distance, ascending. It is nil if
	// there are no others, or if the machine does not report distances.
	NUMANodes []int `json:"numaNodes,omitempty"`
	// Vendor and Product are PCI IDs: four hexadecimal digits.
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	// Driver is the kernel driver that is bound to the hardware.
	Driver string `json:"driver"`
	// RDMA is true if the device has RDMA devices. The RDMA devices of a function may be in another network namespace,
	// which hides their names.
	RDMA bool `json:"rdma"`
	// RDMADevices are the names of the RDMA devices, for example mlx5_0, sorted: the devices of the PCI function,
	// devices with a port on the link, and the devices of a bond's members. Several devices can therefore have the same
	// RDMA device.
	RDMADevices []string `json:"rdmaDevices,omitempty"`
	// RDMALinkLayer is the link layer of the first of RDMADevices: RDMAEthernet or RDMAInfiniBand. Empty if the kernel
	// does not report it.
	RDMALinkLayer string `json:"rdmaLinkLayer,omitempty"`
	// RDMANetns is the network namespace mode of RDMA devices, set on devices with RDMA: RDMAShared or RDMAExclusive.
	// It is the same for all devices of a node. Empty if the kernel does not report it.
	RDMANetns string `json:"rdmaNetns,omitempty"`

	// PortName is the name of the link's port in hardware (phys_port_name): p0, pf0vf1... Empty for most drivers.
	PortName string `json:"portName,omitempty"`
	// SwitchID is the same for all links that are ports of one switch in hardware (phys_switch_id). Empty without one.
	SwitchID string `json:"switchID,omitempty"`
	// Representor is true if the link is the switch's end of the connection to a function (a port in switchdev mode),
	// not the function's own interface.
	Representor bool `json:"representor,omitempty"`

	// SRIOVCapable is true if the function supports virtual functions: TotalVFs > 0.
	SRIOVCapable bool `json:"sriovCapable"`
	TotalVFs     int  `json:"totalVFs"`
	NumVFs       int  `json:"numVFs"`
	// EswitchMode is the mode of the switch in a physical function: EswitchLegacy or EswitchSwitchdev. Empty without
	// such a switch, without devlink, and without the privilege to query it (CAP_NET_ADMIN).
	EswitchMode string `json:"eswitchMode,omitempty"`
	// PFName and PFAddress are only set for virtual functions.
	PFName    IfName     `json:"pfName"`
	PFAddress PCIAddress `json:"pfAddress"`
	// VFIndex is None for all devices except virtual functions.
	VFIndex int `json:"vfIndex"`
	// Settings are the settings of a virtual function that its physical function stores. Nil if the interface of the
	// physical function is not on the host, or its driver does not report them.
	Settings *VFSettings `json:"settings,omitempty"`

	// BridgeName, BridgeType ("linux") and VLANFiltering are set for bridges; the first two also, with "ovs", for
	// internal ports of Open vSwitch, which may be bridges: see TypeOVSInternal.
	BridgeName    IfName `json:"bridgeName"`
	BridgeType    string `json:"bridgeType"`
	VLANFiltering bool   `json:"vlanFiltering"`
	// Master is the link that this link is enslaved to, of any kind (MasterKind): bridge, bond, vrf...
	Master     IfName `json:"master"`
	MasterKind string `json:"masterKind"`
	// Parent is the lower device of a VLAN, macvlan, ipvlan..., in the same network namespace.
	Parent IfName `json:"parent"`
	// VLANID is None for all devices except VLANs.
	VLANID int `json:"vlanID"`
	// DefaultRoute is true if the device carries a default route of the main table or an address of the node, or is
	// below such a device as its bridge port, bond member or parent.
	DefaultRoute bool `json:"defaultRoute"`
}

// VFSettings are the settings of a virtual function that its physical function stores, as with "ip link set PF vf
// INDEX". The owner of the virtual function cannot change them.
type VFSettings struct {
	// MAC is empty if none was set.
	MAC string `json:"mac,omitempty"`
	// VLAN is the VLAN ID of the function's traffic, tagged with the priority QoS; 0 if it is untagged.
	VLAN int `json:"vlan"`
	QoS  int `json:"qos"`
	// Trust allows the function to change its address and to receive frames for other addresses.
	Trust bool `json:"trust"`
	// SpoofCheck is true if frames with source addresses other than the function's are dropped, or if the driver does
	// not report it.
	SpoofCheck bool `json:"spoofCheck"`
	// LinkState is auto (follows the physical function), enable or disable.
	LinkState string `json:"linkState"`
	// MinTxRate and MaxTxRate are in Mbit/s; 0 means no limit.
	MinTxRate int `json:"minTxRate"`
	MaxTxRate int `json:"maxTxRate"`
}

// Problem is a fact that could not be read.
type Problem struct {
	// Device is the name or PCI address of the device with the problem. It is empty if the problem concerns the node.
	Device  string `json:"device,omitempty"`
	Message string `json:"message"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	if p.Device == "" {
		return p.Message
	}
	return fmt.Sprintf("%s: %s", p.Device, p.Message)
}

// With returns the facts with snapshots instead of the discovered devices of the same identity, which is the PCI
// address if there is one, otherwise the name. A snapshot of a device that was not discovered is added. It keeps
// devices that are in use inside pods, where discovery cannot see them, published as before. The receiver and the
// snapshots are not changed.
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
	union := Facts{Orphans: orphans, Problems: slices.Clone(f.Problems)}
	union.add(devices, inUse)
	return union
}

// keepNames gives a renamed physical function, and its virtual functions, the name that they had when one of the
// virtual functions was allocated: exclusions depend on the name while that function is in use. Renamed functions count
// as in use, too.
func keepNames(devices map[string]Device, snapshots []Device, inUse map[string]bool) {
	for _, snapshot := range snapshots {
		pf, known := devices[Device{PCIAddress: snapshot.PFAddress}.identity()]
		if snapshot.PFAddress == "" || !known || pf.Name == snapshot.PFName {
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

// identity identifies a device across readings.
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

// add sorts the devices by name into the facts. If several devices have the same name, devices in use take precedence,
// then PCI functions; the others are left out with a problem.
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
		if a.Name != b.Name { // nearly always; computing ranks costs more
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.PCIAddress, b.PCIAddress))
	})
	f.Devices = slices.Grow(f.Devices, len(sorted))
	for _, d := range sorted {
		if n := len(f.Devices); n > 0 && f.Devices[n-1].Name == d.Name {
			f.Problems = append(f.Problems, Problem{Device: string(d.Name), Message: fmt.Sprintf(
				"cannot distinguish two devices: interface %q (PCI %q) is ignored because PCI function %q has the same "+
					"name; rename the interface",
				d.Interface, d.PCIAddress, f.Devices[n-1].PCIAddress)})
			continue
		}
		f.Devices = append(f.Devices, *d)
	}
}

// adopt names the virtual functions that have an index and whose physical function is among the devices.
func adopt(orphans []Device, devices map[string]Device) (named, left []Device) {
	named = make([]Device, 0, len(orphans))
	for _, vf := range orphans {
		pf, ok := devices[Device{PCIAddress: vf.PFAddress}.identity()]
		if !ok || vf.VFIndex == None {
			left = append(left, vf)
			continue
		}
		named = append(named, vf.withPF(pf.Name))
	}
	return named, left
}

// withPF returns the virtual function with its name as a function of pf.
func (d Device) withPF(pf IfName) Device {
	d.PFName = pf
	d.Name = IfName(fmt.Sprintf("%sv%d", pf, d.VFIndex))
	return d
}
