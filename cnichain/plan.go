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

// Claim names a ResourceClaim.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String is namespace/name.
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// Device is an allocated device as of the preparation of its claim: the data that the chain needs to attach it, and its
// required state after the return to the host.
type Device struct {
	// Pool, Name, ShareID and Request are from the allocation result. ShareID is empty for an exclusive device.
	Pool    string `json:"pool"`
	Name    string `json:"name"`
	ShareID string `json:"shareID,omitempty"`
	Request string `json:"request"`
	// Exclusive is true when no other claim may use the device.
	Exclusive bool `json:"exclusive,omitempty"`
	// CNIs are the CNI types that the policy allows on the device.
	CNIs []string `json:"cnis"`
	// IfName is the host's name of the link, empty for a function that no network driver is bound to; PCIAddress is
	// empty for virtual links.
	IfName     string `json:"ifName"`
	PCIAddress string `json:"pciAddress,omitempty"`
	// PF is the PCI address of a virtual function's physical function: chains on functions of one PF take turns.
	PF string `json:"pf,omitempty"`
	// NetworkResource is the resource name under which NetworkAttachmentDefinitions know the device, and NetworkID what
	// they call it: its PCI address, or the host's name of a link that has none, unless the policy says otherwise.
	// NetworkResource is empty where the policy names none.
	NetworkResource string `json:"networkResource,omitempty"`
	NetworkID       string `json:"networkID,omitempty"`
	// AllowInUse is true if the node may have addresses and routes on the device, which are in the baseline.
	AllowInUse bool `json:"allowInUse,omitempty"`
	// Moved are the RDMA devices that move into the pod with the device, or may have moved already: the RDMA devices at
	// the beginning of its step, if RDMA devices belong to namespaces and the step gives them to the pod.
	Moved []RDMADevice `json:"movedRDMA,omitempty"`
	// BindTo is the kernel driver that the device is bound to while a pod has it; empty for its own.
	BindTo string `json:"bindTo,omitempty"`
	// Baseline is the required state of the device after its return to the host.
	Baseline
	// Attributes are the published attributes (bare names for dra.networking): strings, booleans and integers, for
	// {{ device.<attribute> }}.
	Attributes map[string]any `json:"attributes,omitempty"`
}

// Baseline is the state of a free device on the host. It is valid for one boot: in another one, a virtual device was
// not moved, indexes identify other links, and the settings of hardware are the administrator's current ones.
type Baseline struct {
	// BootID is the kernel's boot in which the baseline was taken; empty in records of earlier drivers.
	BootID string `json:"bootID,omitempty"`
	// Kind is the kernel's kind of link, "device" for hardware; Driver is what hardware is bound to.
	Kind   string `json:"kind,omitempty"`
	Driver string `json:"driver,omitempty"`
	// DriverOverride is the only driver that may take the hardware, if an administrator has said so.
	DriverOverride string `json:"driverOverride,omitempty"`
	Index          int    `json:"index,omitempty"`
	// Parent is the index of the lower device of a virtual link, or of a veth's other end; 0 without one.
	Parent int `json:"parent,omitempty"`
	// PeerOnHost is true if the link is one of a pair whose other end, with the index Parent, is on the host too.
	PeerOnHost bool `json:"peerOnHost,omitempty"`
	// StandsOn is the lower device of a virtual link; nil if it is not on the host, and for links that report their
	// peer as their parent. Records of earlier drivers have none.
	StandsOn *LowerLink `json:"standsOn,omitempty"`
	// VLANID and VLANProtocol, such as 802.1q, are a VLAN's: with the parent they are what no other link can have.
	VLANID       int    `json:"vlanID,omitempty"`
	VLANProtocol string `json:"vlanProtocol,omitempty"`
	// ParentDev is the device of hardware on its bus, such as 0000:03:00.1 or virtio0 (IFLA_PARENT_DEV_NAME), and
	// PermMAC its permanent address: in a pod, nothing can change them.
	ParentDev string `json:"parentDev,omitempty"`
	PermMAC   string `json:"permMAC,omitempty"`
	// Port tells links of one PCI function apart: dev_port and phys_port_name of sysfs.
	Port     string   `json:"port,omitempty"`
	AltNames []string `json:"altNames,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	// MAC is empty for a bridge that has the address of one of its ports.
	MAC string `json:"mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
	Up  bool   `json:"up,omitempty"`
	// State is everything else that the kernel reports about the link of an exclusive device (package linkstate).
	State map[string][]byte `json:"state,omitempty"`
	VF    *VFConfig         `json:"vf,omitempty"`
	// Network is the node's configuration of the device; nil if the device must not be in use.
	Network *NetworkConfig `json:"network,omitempty"`
}

// LowerLink is a link of the host below others: VLANs, macvlans, tunnels...
type LowerLink struct {
	Index int `json:"index"`
	// PF is the PCI address of the physical function, if it is the link of a virtual one.
	PF string `json:"pf,omitempty"`
}

// Identity tells physical devices of a node apart, however they are called: the PCI address, or the name of a virtual
// link.
func (d *Device) Identity() string { return cmp.Or(d.PCIAddress, d.IfName) }

// AttributeValue returns the value of {{ device.<name> }}. The device is nil for a step without one.
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

// HasUniqueMAC is false for links without an address, such as wireguard and tun, and for tunnels, whose address belongs
// to an end and may be shared.
func (d *Device) HasUniqueMAC() bool {
	mac, err := net.ParseMAC(d.MAC) // 6, 8 or 20 bytes
	return err == nil && slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// IsHardware always comes back to the host, sooner or later; a virtual link may be destroyed.
func (d *Device) IsHardware() bool { return d.PCIAddress != "" || d.Driver != "" }

// VFConfig is the configuration of a virtual function that its physical function keeps (IFLA_VF_INFO): it stays when
// the function moves and when its pod is gone.
type VFConfig struct {
	// MAC is the administrative address; all zeros when none is set.
	MAC string `json:"mac"`
	// VLAN is the 802.1Q id that the PF adds, 0 for none. Which protocol it uses the kernel does not say where it is
	// read (IFLA_VF_VLAN), so a VLAN of 802.1ad comes back as one of 802.1Q.
	VLAN     int  `json:"vlan"`
	QoS      int  `json:"qos"`
	SpoofChk bool `json:"spoofChk"`
	Trust    bool `json:"trust"`
	// LinkState is 0 auto, 1 enable, 2 disable (IFLA_VF_LINK_STATE).
	LinkState uint32 `json:"linkState"`
	// MinTxRate and MaxTxRate are in Mbit/s, 0 without a limit.
	MinTxRate uint32 `json:"minTxRate"`
	MaxTxRate uint32 `json:"maxTxRate"`
}

// Plugin is a CNI plugin's binary on this node.
type Plugin struct {
	// Path is where the binary is.
	Path string `json:"path"`
	// Versions are the versions of the CNI specification that it speaks.
	Versions []string `json:"versions"`
}

// RootDevice gives a device to a root step. The i-th device of a step belongs to the i-th instance of the topology.
type RootDevice struct {
	Step   string
	Device Device
	// Parameters are the claim's parameters for the interfaces that are created with the device.
	Parameters []v1alpha1.ClaimParameters
}

// Binding is everything that a plan depends on beside the topology.
type Binding struct {
	Claim   Claim
	Node    string
	Schemas Schemas
	// Plugins are the binaries, by CNI type; a type that is not there has none on this node.
	Plugins map[string]Plugin
	// KernelLacks are the kernel features that plugins need and the node lacks, by CNI type; see [Schemas.KernelLacks].
	KernelLacks map[string]string
	// Dirs are where plugins were looked for, for messages.
	Dirs []string
	// Blocks are the node's blocks of AddressRanges, by range, those to be used first before others.
	Blocks map[string][]BlockRoom
	// Pods is the number of pods of the node that are known to use the claim; 0 means 1.
	Pods int
	// DirsHelp tells in messages how to have plugins looked for elsewhere, such as "set --cni-path"; it may be empty.
	DirsHelp string
	// Devices are in the order of the claim's requests and results.
	Devices []RootDevice
	// WithoutClaim is true if there is no claim, so that parameters which a topology requires of claims may be missing.
	WithoutClaim bool
}

func (b *Binding) pods() int { return max(b.Pods, 1) }

// Plan is a topology compiled for one claim: everything that ADD and DEL need, so that nothing is looked up again when
// the topology, the claim or the device may have changed or gone.
//
// It is JSON in the journal, and a driver of another version reads it. Fields may be added whose zero value means what
// was before. None is renamed or gets another meaning, unless cnichain/journal raises its schema.
type Plan struct {
	Topology string `json:"topology"`
	Claim    Claim  `json:"claim"`
	// Steps are in the order of ADD; DEL runs them in reverse.
	Steps []PlanStep `json:"steps"`
	// External are the steps of a topology whose devices others attach. They are never run: they have a name, a type
	// and a device. A plan with them has no Steps.
	External []PlanStep `json:"external,omitempty"`
}

// DeviceSteps are the steps that can have a device, whoever attaches it.
func (p *Plan) DeviceSteps() []PlanStep { return slices.Concat(p.Steps, p.External) }

// PlanStep is one CNI call to be made for each pod of the claim.
type PlanStep struct {
	// Name is the step's name in the topology; with several instances of the topology they share it.
	Name     string `json:"name"`
	Instance int    `json:"instance"`
	Type     string `json:"type"`
	// DependsOn are indexes of earlier steps of the plan, in the order of dependOn.
	DependsOn []int `json:"dependsOn,omitempty"`
	// Path is the plugin's binary, CNIVersion the version that it and the driver speak.
	Path       string `json:"path"`
	CNIVersion string `json:"cniVersion"`
	// Network is the CNI network name.
	Network string `json:"network"`
	// IfName is the wanted name of the interface; may hold templates; empty for the driver's choice.
	IfName string `json:"ifName,omitempty"`
	// PodNetwork is the network that the pod must select by annotation; nil for plugins that attach every pod.
	PodNetwork *PodNetwork `json:"podNetwork,omitempty"`
	// Makes is true when the plugin makes the interface CNI_IFNAME, false when it works on its parent's.
	Makes bool `json:"makes,omitempty"`
	// Moves is true when the plugin moves its device into the pod; a record of an earlier driver does not say.
	Moves bool `json:"moves,omitempty"`
	// Stays is true when the plugin leaves its device on the host. A plugin without a schema has neither.
	Stays bool `json:"stays,omitempty"`
	// PrevResult is true when the plugin is given its parents' results.
	PrevResult bool `json:"prevResult,omitempty"`
	// Config is the plugin's configuration with its templates unrendered.
	Config json.RawMessage `json:"config"`
	// DeviceParameter and DeviceValue are the parameter that names the device. They are set after rendering: a name
	// from the host is never a template.
	DeviceParameter string `json:"deviceParameter,omitempty"`
	DeviceValue     string `json:"deviceValue,omitempty"`
	// Device is the device that a root step attaches, nil for derived steps.
	Device *Device `json:"device,omitempty"`
	// RuntimeDeviceID passes the PCI address as the deviceID of the CNI runtime configuration.
	RuntimeDeviceID string `json:"runtimeDeviceID,omitempty"`
	// MAC and IPs are the claim's parameters for the interface, passed as CNI runtime configuration; empty without
	// parameters.
	MAC string   `json:"mac,omitempty"`
	IPs []string `json:"ips,omitempty"`
	// Range is where the addresses come from that the configuration has; nil if it is as the topology says.
	Range *StepRange `json:"addressRange,omitempty"`
	// RDMA says which files of the device's RDMA devices containers get; nil for none.
	RDMA *v1alpha1.StepRDMA `json:"rdma,omitempty"`
	// Limits are resource limits of the containers that name the claim; nil for none.
	Limits *v1alpha1.StepLimits `json:"limits,omitempty"`
	// LeavesNoFiles is true if neither the plugin nor its IPAM plugin writes state that survives a boot.
	LeavesNoFiles bool `json:"leavesNoFiles,omitempty"`
	// Quirks are the plugin's known deviations.
	Quirks v1alpha1.PluginQuirks `json:"quirks,omitzero"`
	// ConflictsWith are the CNI types that can't work on the same device; a record of an earlier driver may lack them.
	ConflictsWith []string `json:"conflictsWith,omitempty"`
}

// Clashes says whether two root steps can't work on one device at the same time: one's schema names the other's type.
// It is false for steps with different devices.
func (s *PlanStep) Clashes(second *PlanStep) bool {
	return s.Device != nil && second.Device != nil && s.Device.Identity() == second.Device.Identity() &&
		(slices.Contains(s.ConflictsWith, second.Type) || slices.Contains(second.ConflictsWith, s.Type))
}

// HasDefaultNetwork is true if the step's network is not one that the topology names, which may be other runtimes' too.
func (s *PlanStep) HasDefaultNetwork(topology string, claim Claim) bool {
	return s.Network == defaultNetwork(topology, s.Name, s.Instance, s.Makes, claim) ||
		s.Network == sharedNetwork(topology, s.Name, s.Instance, s.Makes)
}

// BindsDriver reports whether the step gives the pod device nodes of its device instead of an interface.
func (s *PlanStep) BindsDriver() bool { return s.Device != nil && s.Device.BindTo != "" }

// OwnsDevice says whether the step has a device that no other step may have meanwhile.
func (s *PlanStep) OwnsDevice() bool { return s.Device != nil && s.Device.Exclusive }

// Speaks says whether the step's plugin is called with at least a version of the CNI specification.
func (s *PlanStep) Speaks(wanted string) bool {
	enough, err := version.GreaterThanOrEqualTo(s.CNIVersion, wanted)
	return err == nil && enough
}

// Types returns the CNI types that the driver runs for a topology, IPAM plugins included, sorted.
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

// IPAMType returns the IPAM plugin that a configuration names, "" without one.
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
