package cnichain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Claim identifies a ResourceClaim.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String returns namespace/name.
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// Device describes an allocated device as it was when its claim was prepared. It contains the data that the chain needs
// to attach the device, and the state that the device must have once it is back on the host.
type Device struct {
	// Pool, Name, ShareID and Request are from the allocation result. ShareID is empty for an exclusive device.
	Pool    string `json:"pool"`
	Name    string `json:"name"`
	ShareID string `json:"shareID,omitempty"`
	Request string `json:"request"`
	// Exclusive is true if no other claim may use the device.
	Exclusive bool `json:"exclusive,omitempty"`
	// CNIs are the CNI types that the policy allows on the device.
	CNIs []string `json:"cnis"`
	// IfName is the name of the link on the host. It is empty for a function without a network driver. PCIAddress is
	// empty for virtual links.
	IfName     string `json:"ifName"`
	PCIAddress string `json:"pciAddress,omitempty"`
	// SharedFunction is true if other interfaces share the device's PCI function. Plugins are then passed the interface
	// name, because the PCI address does not identify the interface.
	SharedFunction bool `json:"sharedFunction,omitempty"`
	// AuxiliaryDevice is the name of a scalable function on the auxiliary bus. It is empty for other devices.
	AuxiliaryDevice string `json:"auxiliaryDevice,omitempty"`
	// PF is the PCI address of a virtual function's physical function. The number of concurrent plugin calls for
	// virtual functions of the same PF is limited.
	PF string `json:"pf,omitempty"`
	// NetworkResource is the resource name that NetworkAttachmentDefinitions use to refer to the device; empty if the
	// policy does not define one. NetworkID is the device's ID in that resource. Unless the policy defines a different
	// ID, it is the PCI address, or else the name of the auxiliary device, or else the link's name on the host.
	NetworkResource string `json:"networkResource,omitempty"`
	NetworkID       string `json:"networkID,omitempty"`
	// AllowInUse is true if the node is allowed to have addresses and routes on the device. They are then part of the
	// baseline.
	AllowInUse bool `json:"allowInUse,omitempty"`
	// Moved lists the RDMA devices that will move into the pod together with the device, or may already have moved. It
	// is set when the step begins, and only if the node is in exclusive RDMA mode and the step provides RDMA devices to
	// the pod.
	Moved []RDMADevice `json:"movedRDMA,omitempty"`
	// KeepsLink is true if the device's step attaches no interface: the link stays on the host, where the node may use
	// and configure it, so the driver does not check, change or restore the link.
	KeepsLink bool `json:"keepsLink,omitempty"`
	// BindTo is the kernel driver that the device is bound to while a pod uses it; empty if the device keeps its own
	// driver.
	BindTo string `json:"bindTo,omitempty"`
	// Baseline is the state that the device must have once it is back on the host.
	Baseline
	// Attributes are the published attributes, which templates refer to as {{ device.<attribute> }}. The values are
	// strings, booleans and integers. Names in the domain dra.networking have no prefix.
	Attributes map[string]any `json:"attributes,omitempty"`
}

// Baseline is the state of a free device on the host. It is valid only until the next reboot: after a reboot, virtual
// devices have not yet been moved, indexes may identify different links, and the hardware has the administrator's
// settings.
type Baseline struct {
	// BootID identifies the boot during which the baseline was read; empty in records from earlier driver versions.
	BootID string `json:"bootID,omitempty"`
	// Kind is the kernel's link kind, or "device" for hardware. Driver is the hardware's kernel driver.
	Kind   string `json:"kind,omitempty"`
	Driver string `json:"driver,omitempty"`
	// DriverOverride is the only driver allowed to bind to the hardware; empty if no administrator has set an override.
	DriverOverride string `json:"driverOverride,omitempty"`
	Index          int    `json:"index,omitempty"`
	// Parent is the index of a virtual link's lower device, or of a veth's peer; 0 if there is none.
	Parent int `json:"parent,omitempty"`
	// PeerOnHost is true if the link is one end of a pair whose other end (with the index Parent) is also on the host.
	PeerOnHost bool `json:"peerOnHost,omitempty"`
	// StandsOn is the lower device of a virtual link. It is nil if the lower device is not on the host, if the link
	// reports its peer as its parent, and in records from earlier driver versions.
	StandsOn *LowerLink `json:"standsOn,omitempty"`
	// VLANID and VLANProtocol (such as 802.1q) are set only for VLANs. Together with the parent, they uniquely identify
	// a VLAN.
	VLANID       int    `json:"vlanID,omitempty"`
	VLANProtocol string `json:"vlanProtocol,omitempty"`
	// ParentDev is the hardware's bus device, such as 0000:03:00.1 or virtio0 (IFLA_PARENT_DEV_NAME), and PermMAC is
	// its permanent address. Neither can be changed in a pod.
	ParentDev string `json:"parentDev,omitempty"`
	PermMAC   string `json:"permMAC,omitempty"`
	// Port distinguishes links that share a PCI function. It consists of dev_port and phys_port_name from sysfs.
	Port     string   `json:"port,omitempty"`
	AltNames []string `json:"altNames,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	// MAC is empty for a bridge that uses the address of one of its ports.
	MAC string `json:"mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
	Up  bool   `json:"up,omitempty"`
	// State contains all other attributes that the kernel reports for an exclusive device's link (package linkstate).
	State map[string][]byte `json:"state,omitempty"`
	VF    *VFConfig         `json:"vf,omitempty"`
	// Network is the node's network configuration on the device; nil if the node is not allowed to use the device.
	Network *NetworkConfig `json:"network,omitempty"`
}

// LowerLink is a link on the host that is the lower device of another link, such as a VLAN, macvlan or tunnel.
type LowerLink struct {
	Index int `json:"index"`
	// PF is the PCI address of the physical function if the link belongs to a virtual function.
	PF string `json:"pf,omitempty"`
}

// Identity returns an identifier that is unique on the node and does not depend on Name: the PCI address, or the link
// name if the device is a virtual link.
func (d *Device) Identity() string { return cmp.Or(d.PCIAddress, d.IfName) }

// AttributeValue returns the value of {{ device.<name> }}. d is nil for a step without a device.
func (d *Device) AttributeValue(name string) (any, error) {
	if d == nil {
		return nil, errors.New("the step has no device")
	}
	value, known := d.Attributes[name]
	if !known {
		return nil, fmt.Errorf("device %s has no attribute %q; it has %s",
			d.Name, name, strings.Join(slices.Sorted(maps.Keys(d.Attributes)), ", "))
	}
	return value, nil
}

// HasUniqueMAC reports whether the MAC address identifies the device. It returns false for links without an address,
// such as wireguard and tun, and for tunnels, whose address is an endpoint address that other links may share.
func (d *Device) HasUniqueMAC() bool {
	mac, err := net.ParseMAC(d.MAC) // 6, 8 or 20 bytes
	return err == nil && slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// IsHardware reports whether the device is hardware. Hardware always returns to the host eventually, while a virtual
// link may be destroyed.
func (d *Device) IsHardware() bool { return d.PCIAddress != "" || d.Driver != "" }

// VFConfig is the configuration that a physical function stores for one of its virtual functions (IFLA_VF_INFO). It
// persists when the virtual function moves to another namespace and when the pod terminates.
type VFConfig struct {
	// MAC is the administrative address; all zeros if no address is set.
	MAC string `json:"mac"`
	// VLAN is the ID of the VLAN tag that the PF adds; 0 means none. The kernel does not report the VLAN protocol
	// (IFLA_VF_VLAN), so an 802.1ad VLAN is restored as 802.1Q.
	VLAN     int  `json:"vlan"`
	QoS      int  `json:"qos"`
	SpoofChk bool `json:"spoofChk"`
	Trust    bool `json:"trust"`
	// LinkState is 0 for auto, 1 for enable or 2 for disable (IFLA_VF_LINK_STATE).
	LinkState uint32 `json:"linkState"`
	// MinTxRate and MaxTxRate are in Mbit/s; 0 means no limit.
	MinTxRate uint32 `json:"minTxRate"`
	MaxTxRate uint32 `json:"maxTxRate"`
}

// Plugin describes the binary of a CNI plugin on this node.
type Plugin struct {
	// Path is the path to the binary.
	Path string `json:"path"`
	// Versions are the CNI specification versions that the plugin supports.
	Versions []string `json:"versions"`
}

// RootDevice assigns a device to a root step. The i-th device of a step belongs to the i-th instance of the topology.
type RootDevice struct {
	Step   string
	Device Device
	// Parameters are the claim's parameters for the interfaces created from the device.
	Parameters []v1alpha1.ClaimParameters
}

// Binding contains all inputs for a plan except the topology.
type Binding struct {
	Claim   Claim
	Node    string
	Schemas Schemas
	// Plugins maps each CNI type that is installed on this node to its binary.
	Plugins map[string]Plugin
	// KernelLacks maps each CNI type that cannot work on this node's kernel to the reason; see [Schemas.KernelLacks].
	KernelLacks map[string]string
	// Dirs are the directories that were searched for plugins. They are used in messages.
	Dirs []string
	// Blocks maps each AddressRange to the node's AddressBlocks from that range, in order of preference.
	Blocks map[string][]BlockRoom
	// Pods is the number of pods on the node that are known to use the claim; 0 means 1.
	Pods int
	// DirsHelp is a hint for messages on how to configure other directories, such as "set --cni-path"; it may be empty.
	DirsHelp string
	// Devices are in the order of the claim's requests and results.
	Devices []RootDevice
	// WithoutClaim is true if there is no claim. Parameters that a topology requires from claims may then be missing.
	WithoutClaim bool
}

func (b *Binding) pods() int { return max(b.Pods, 1) }

// Plan is a topology compiled for one claim. It contains all inputs for ADD and DEL, so that the topology, claim and
// device do not have to be read again later, when they may have been changed or deleted.
//
// It is stored as JSON in the journal, where other driver versions read it. Fields may be added if their zero value
// results in the earlier behavior. Fields must not be renamed, and their meaning must not change, unless the schema
// version in cnichain/journal is raised.
type Plan struct {
	Topology string `json:"topology"`
	Claim    Claim  `json:"claim"`
	// Steps are in ADD order; DEL runs them in reverse.
	Steps []PlanStep `json:"steps"`
	// External contains the steps of a topology whose devices are attached by other components. These steps are never
	// run. Only their Name, Instance, Type, Device and ConflictsWith are set. A plan with external steps has no Steps.
	External []PlanStep `json:"external,omitempty"`
}

// DeviceSteps returns the steps that can have a device, regardless of which component attaches it.
func (p *Plan) DeviceSteps() []PlanStep { return slices.Concat(p.Steps, p.External) }

// PlanStep is a CNI call to be made for each pod that uses the claim.
type PlanStep struct {
	// Name is the step's name in the topology. It is the same in all instances of the topology.
	Name     string `json:"name"`
	Instance int    `json:"instance"`
	Type     string `json:"type"`
	// DependsOn lists the steps in dependOn, in the same order, as indexes of earlier steps in the plan.
	DependsOn []int `json:"dependsOn,omitempty"`
	// Path is the path to the plugin's binary, and CNIVersion is the CNI version used to call it.
	Path       string `json:"path"`
	CNIVersion string `json:"cniVersion"`
	// Network is the CNI network name.
	Network string `json:"network"`
	// IfName is the requested name of the interface, which may contain templates. If it is empty, the driver chooses a
	// name.
	IfName string `json:"ifName,omitempty"`
	// PodNetwork is the network that the pod must select by annotation; nil for plugins that do not require this.
	PodNetwork *PodNetwork `json:"podNetwork,omitempty"`
	// Makes is true if the plugin creates the interface CNI_IFNAME, and false if it modifies its parent's interface.
	Makes bool `json:"makes,omitempty"`
	// Moves is true if the plugin moves its device into the pod. It is never set in records from earlier driver
	// versions.
	Moves bool `json:"moves,omitempty"`
	// Stays is true if the plugin leaves its device on the host. For a plugin without a schema, neither Moves nor Stays
	// is set.
	Stays bool `json:"stays,omitempty"`
	// NoInterface is true if the plugin attaches no interface and containers use the device through its device files
	// instead.
	NoInterface bool `json:"noInterface,omitempty"`
	// PrevResult is true if the plugin receives its parents' results.
	PrevResult bool `json:"prevResult,omitempty"`
	// Config is the plugin's configuration with unrendered templates.
	Config json.RawMessage `json:"config"`
	// DeviceParameter and DeviceValue are the name and value of the parameter that identifies the device. The parameter
	// is set after rendering, so that a name from the host is never treated as a template.
	DeviceParameter string `json:"deviceParameter,omitempty"`
	DeviceValue     string `json:"deviceValue,omitempty"`
	// Device is the device that a root step attaches; nil for derived steps.
	Device *Device `json:"device,omitempty"`
	// RuntimeDeviceID is the PCI address that is passed as deviceID in the CNI runtime configuration.
	RuntimeDeviceID string `json:"runtimeDeviceID,omitempty"`
	// MAC and IPs are the addresses that the claim sets for the interface; empty if the claim does not set them. They
	// are passed to the plugin in the CNI runtime configuration.
	MAC string   `json:"mac,omitempty"`
	IPs []string `json:"ips,omitempty"`
	// Range is the source of the addresses in the configuration; nil if the addresses do not come from an AddressRange.
	Range *StepRange `json:"addressRange,omitempty"`
	// RDMA selects which RDMA device files are exposed to containers; nil means none.
	RDMA *v1alpha1.StepRDMA `json:"rdma,omitempty"`
	// DeviceNodes are additional device files that are exposed to containers.
	DeviceNodes []v1alpha1.DeviceNode `json:"deviceNodes,omitempty"`
	// KeepsDefaultRoute is true if the step must not replace the pod's default route. It is false in plans from earlier
	// driver versions, because their topologies had no way to permit the replacement.
	KeepsDefaultRoute bool `json:"keepsDefaultRoute,omitempty"`
	// Limits are the resource limits for containers that use the claim; nil means none.
	Limits *v1alpha1.StepLimits `json:"limits,omitempty"`
	// LeavesNoFiles is true if neither the plugin nor its IPAM plugin writes state that survives a reboot.
	LeavesNoFiles bool `json:"leavesNoFiles,omitempty"`
	// Quirks are the plugin's known deviations from the CNI specification.
	Quirks v1alpha1.PluginQuirks `json:"quirks,omitzero"`
	// ConflictsWith lists the CNI types that cannot use the same device as the step's plugin. It may be empty in
	// records from earlier driver versions.
	ConflictsWith []string `json:"conflictsWith,omitempty"`
}

// Clashes reports whether two root steps cannot use the same device at the same time, because the schema for one step's
// plugin lists the other step's type as a conflict. It returns false for steps with different devices.
func (s *PlanStep) Clashes(second *PlanStep) bool {
	return s.Device != nil && second.Device != nil && s.Device.Identity() == second.Device.Identity() &&
		(slices.Contains(s.ConflictsWith, second.Type) || slices.Contains(second.ConflictsWith, s.Type))
}

// Title returns a description of the step for messages: its name, type and topology.
func (s *PlanStep) Title(topology string) string {
	return fmt.Sprintf("step %q (%s) of topology %s", s.Name, s.Type, topology)
}

// BindsDriver reports whether the step binds its device to a different kernel driver, for direct use by applications.
func (s *PlanStep) BindsDriver() bool { return s.Device != nil && s.Device.BindTo != "" }

// WithoutInterface reports whether the step provides its device to the pod as device nodes rather than as an interface.
func (s *PlanStep) WithoutInterface() bool { return s.NoInterface || s.BindsDriver() }

// OwnsDevice reports whether the step has an exclusive device.
func (s *PlanStep) OwnsDevice() bool { return s.Device != nil && s.Device.Exclusive }

// Speaks reports whether the step's plugin is called with the given CNI specification version or a newer one.
func (s *PlanStep) Speaks(wanted string) bool {
	enough, err := version.GreaterThanOrEqualTo(s.CNIVersion, wanted)
	return err == nil && enough
}

// Types returns the sorted CNI types that the driver runs for a topology, including IPAM plugins.
func Types(topology *v1alpha1.NetworkTopology) []string {
	types := map[string]bool{}
	if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return nil
	}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		types[step.Type] = true
		if ipam := IPAMType(rawConfig(step)); ipam != "" {
			types[ipam] = true
		}
	}
	return slices.Sorted(maps.Keys(types))
}

// IPAMType returns the IPAM plugin in a configuration, or "" if there is none.
func IPAMType(config json.RawMessage) string {
	var parsed struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if json.Unmarshal(config, &parsed) != nil {
		return ""
	}
	return parsed.IPAM.Type
}

func rawConfig(step *v1alpha1.Step) json.RawMessage {
	if step.Config == nil {
		return nil
	}
	return step.Config.Raw
}
