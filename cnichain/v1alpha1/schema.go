package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNIPluginSchema describes one CNI plugin: its parameters, the parameter that names the allocated device, the
// interfaces that it creates, and the prevResult that it needs. Topologies are validated against it when they are
// stored. Schemas of well-known plugins are built in. A schema in the cluster replaces the built-in one of the same
// type, so a new plugin needs no new release of the driver.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cnischema
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.cniType`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CNIPluginSchema struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the contract.
	Spec CNIPluginSchemaSpec `json:"spec"`
	// status is reported by the controller.
	// +optional
	Status CNIPluginSchemaStatus `json:"status,omitempty"`
}

// CNIPluginSchemaList is a list of schemas.
// +kubebuilder:object:root=true
type CNIPluginSchemaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNIPluginSchema `json:"items"`
}

// CNIPluginSchemaStatus is the state that the controller reports.
type CNIPluginSchemaStatus struct {
	// conditions has Accepted: the schema is valid. The parameters of an invalid schema are ignored.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CNIPluginSchemaSpec is the contract of one CNI plugin.
type CNIPluginSchemaSpec struct {
	// cniType is the file name of the plugin's binary.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	CNIType string `json:"cniType"`
	// deviceParameters name the parameters that identify the allocated device. The first one whose attribute the device
	// has is used.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	DeviceParameters []DeviceParameter `json:"deviceParameters,omitempty"`
	// config are the parameters of the plugin's configuration, or of the ipam section for an IPAM plugin. Without it,
	// every parameter is accepted.
	// +optional
	Config *PluginConfig `json:"config,omitempty"`
	// input describes the input of the plugin.
	// +optional
	Input PluginInput `json:"input,omitempty"`
	// output describes the result of the plugin.
	// +optional
	Output PluginOutput `json:"output,omitempty"`
	// addressBlocks describes how an IPAM plugin receives the addresses of a node. Without it, no step can use the
	// plugin with an addressRange.
	// +optional
	AddressBlocks *AddressBlocks `json:"addressBlocks,omitempty"`
	// capabilities are the keys of the CNI runtime configuration that the plugin supports and that claims may set if a
	// topology allows it: mac, and ips for an IPAM plugin (CNI conventions, "Dynamic Plugin specific fields").
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	Capabilities []Capability `json:"capabilities,omitempty"`
	// conflictsWith are the CNI types that cannot use the same interface as this one. The rule applies in both
	// directions.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	ConflictsWith []string `json:"conflictsWith,omitempty"`
	// hostPaths are files and directories of the host that the plugin needs in addition to /var/lib/cni and /run/cni.
	// The driver's pod must mount them.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^(/[^/]+)+$`
	// +listType=set
	// +optional
	HostPaths []string `json:"hostPaths,omitempty"`
	// linkTypes are the link types that the kernel must support for every use of the plugin, as "ip -details link"
	// shows them, such as vlan. A node whose kernel lacks one offers no devices for the plugin and rejects claims with
	// such a step; netdra doctor reports the missing type.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=31
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9_-]*$`
	// +listType=set
	// +optional
	LinkTypes []string `json:"linkTypes,omitempty"`
	// leavesNoFiles is true if all effects of ADD end with the kernel, as links, addresses and rules do: the plugin
	// writes no file that persists across a reboot. It saves a wait for the disk before each call. If it is set
	// wrongly, files of the plugin can remain after a power loss during a pod start. The IPAM plugin of a step has its
	// own schema.
	// +optional
	LeavesNoFiles bool `json:"leavesNoFiles,omitempty"`
	// podNetworks is set for a plugin that attaches a pod only to networks that an annotation of the pod selects.
	// +optional
	PodNetworks *PodNetworks `json:"podNetworks,omitempty"`
	// remark is a warning for the author of every topology that uses the plugin, about a danger that is not visible
	// elsewhere. It is one line. The condition Accepted of those topologies, the webhook and netdra show it.
	// +kubebuilder:validation:MaxLength=180
	// +kubebuilder:validation:Pattern=`^[^\p{C}\p{Zl}\p{Zp}]*$`
	// +optional
	Remark string `json:"remark,omitempty"`
	// quirks are known deviations from the CNI specification.
	// +optional
	Quirks PluginQuirks `json:"quirks,omitempty"`
}

// Capability is a key of the CNI runtime configuration.
// +kubebuilder:validation:Enum=mac;ips
type Capability string

const (
	// CapabilityMAC sets the MAC address of the interface.
	CapabilityMAC Capability = "mac"
	// CapabilityIPs sets the addresses of the interface, with their prefix lengths.
	CapabilityIPs Capability = "ips"
)

// DeviceParameter is a parameter that names the allocated device.
type DeviceParameter struct {
	// parameter is the key in the plugin's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Parameter string `json:"parameter"`
	// attribute is the device attribute that is its value. auxiliaryDevice is the name of a scalable function on the
	// auxiliary bus.
	// +kubebuilder:validation:Enum=ifName;pciAddress;auxiliaryDevice
	Attribute string `json:"attribute"`
	// onlyExclusive sets the parameter only when the device was allocated exclusively.
	// +optional
	OnlyExclusive bool `json:"onlyExclusive,omitempty"`
}

// AddressBlocks describes how an IPAM plugin receives addresses: in a parameter that is a list of lists, one for each
// IP family. A pod gets one address of each inner list. The elements of the inner lists are objects that describe runs
// of addresses; one run may be given next to the parameter. The lists in topologies are validated: no list is empty or
// mixes families, networks have no host bits and have room for pods, and no address is in two runs.
type AddressBlocks struct {
	// parameter is the key in the plugin's configuration (config.ipam of a step).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Parameter string `json:"parameter"`
	// network is the key of a run for the network with its prefix length, such as 10.20.0.0/16.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Network string `json:"network"`
	// first is the key of a run for its first address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	First string `json:"first"`
	// last is the key of a run for its last address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Last string `json:"last"`
	// excludes are other parameters of the plugin that a step with an addressRange must not set: parameters that add
	// addresses or move the plugin's lease store.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Excludes []string `json:"excludes,omitempty"`
}

// PluginConfig describes the parameters of a plugin. Other parameters are rejected, except name, dev, dns, args,
// capabilities and runtimeConfig, which every plugin accepts.
type PluginConfig struct {
	// properties are the parameters by name.
	// +kubebuilder:validation:MaxProperties=128
	// +optional
	Properties map[string]Parameter `json:"properties,omitempty"`
	// required are the parameters that must be set, by the topology or as one of deviceParameters.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Required []string `json:"required,omitempty"`
}

// ParameterType is a JSON type.
// +kubebuilder:validation:Enum=string;integer;number;boolean;array;object
type ParameterType string

// Types of parameters.
const (
	TypeString  ParameterType = "string"
	TypeInteger ParameterType = "integer"
	TypeNumber  ParameterType = "number"
	TypeBoolean ParameterType = "boolean"
	TypeArray   ParameterType = "array"
	TypeObject  ParameterType = "object"
)

// ParameterFormat is a string format that a regular expression does not describe well.
// +kubebuilder:validation:Enum=ip;cidr;mac
type ParameterFormat string

// Formats of parameters.
const (
	FormatIP   ParameterFormat = "ip"
	FormatCIDR ParameterFormat = "cidr"
	FormatMAC  ParameterFormat = "mac"
)

// Parameter is a value in a plugin's configuration: a subset of JSON Schema.
// +kubebuilder:validation:XValidation:rule="!(has(self.enum) || has(self.pattern) || has(self.format)) || (has(self.type) && self.type == 'string')",message="enum, pattern and format are for strings: set type to string, or remove them"
// +kubebuilder:validation:XValidation:rule="!(has(self.minimum) || has(self.maximum)) || (has(self.type) && self.type in ['integer', 'number'])",message="minimum and maximum are for numbers: set type to integer or number, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.minimum) || !has(self.maximum) || self.minimum <= self.maximum",message="minimum is greater than maximum: no value would be allowed"
// +kubebuilder:validation:XValidation:rule="!has(self.items) || (has(self.type) && self.type == 'array')",message="items is for arrays: set type to array, or remove it"
// +kubebuilder:validation:XValidation:rule="!(has(self.properties) || has(self.required) || has(self.additionalProperties)) || (has(self.type) && self.type == 'object')",message="properties, additionalProperties and required are for objects: set type to object, or remove them"
type Parameter struct {
	// Unreadable is the problem of a parameter that cannot be decoded. Unknown are fields that parameters do not have.
	// Neither is part of the object.
	Unreadable string   `json:"-"`
	Unknown    []string `json:"-"`

	// type is the type of the value. Empty: any value.
	// +optional
	Type ParameterType `json:"type,omitempty"`
	// enum are the accepted values of a string.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	// +optional
	Enum []string `json:"enum,omitempty"`
	// pattern is a regular expression (RE2) that must match a part of the string; use ^ and $ to match the whole
	// string.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Pattern string `json:"pattern,omitempty"`
	// format is the format of a string: ip (an IPv4 or IPv6 address), cidr (an address with a prefix length), or mac
	// (six octets in hexadecimal with colons). Templates are not checked.
	// +optional
	Format ParameterFormat `json:"format,omitempty"`
	// minimum is the least number.
	// +optional
	Minimum *int64 `json:"minimum,omitempty"`
	// maximum is the greatest number.
	// +optional
	Maximum *int64 `json:"maximum,omitempty"`
	// items describes the elements of an array, in the same form as this object. Empty: any value.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Items *Parameter `json:"items,omitempty"`
	// properties are the fields of an object, in the same form as this object. Other fields are rejected unless
	// additionalProperties accepts them. An object with neither may have any fields.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Properties map[string]Parameter `json:"properties,omitempty"`
	// additionalProperties describes the fields of an object that properties does not name, in the same form as this
	// object.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	AdditionalProperties *Parameter `json:"additionalProperties,omitempty"`
	// required are the fields that an object must have.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Required []string `json:"required,omitempty"`
}

// PodNetworks describes how a plugin reads the pod's networks from an annotation. The annotation is a list of networks
// as in the Network Custom Resource Definition De-facto Standard of the Network Plumbing Working Group, section 4.1.
type PodNetworks struct {
	// annotation is the pod's annotation that selects networks, such as k8s.v1.cni.cncf.io/networks. A pod that does
	// not select the network of a step is rejected.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Annotation string `json:"annotation"`
	// parameter is the plugin's parameter that names the network, as namespace/name. Topologies must set it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Parameter string `json:"parameter"`
	// interfaceNames is any (the plugin accepts every name) or selected (only the name that the annotation sets for the
	// network's interface, or net<n> for the n-th network of the annotation).
	// +kubebuilder:validation:Enum=any;selected
	// +kubebuilder:default=any
	// +optional
	InterfaceNames string `json:"interfaceNames,omitempty"`
	// defined are the parameters, including the CNI network name, that the NetworkAttachmentDefinition of the network
	// sets, so that topologies need not repeat them. The driver reads it when a claim is prepared. Empty: the network
	// needs no NetworkAttachmentDefinition.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Defined []string `json:"defined,omitempty"`
}

// PluginInput describes the input of a plugin.
type PluginInput struct {
	// prevResult is none, optional or required. Steps receive one if it is optional or required.
	// +kubebuilder:validation:Enum=none;optional;required
	// +kubebuilder:default=none
	// +optional
	PrevResult string `json:"prevResult,omitempty"`
	// interfaces limits the number of interfaces of earlier steps that a derived step works on. If one of these steps
	// creates none, the interfaces of the steps that it depends on count instead.
	// +optional
	Interfaces InterfaceCount `json:"interfaces,omitempty"`
}

// InterfaceCount bounds a number of interfaces.
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min is greater than max: no number of interfaces would be allowed"
type InterfaceCount struct {
	// min is the minimum. Default: none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Min *int32 `json:"min,omitempty"`
	// max is the maximum. Default: unlimited.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Max *int32 `json:"max,omitempty"`
}

// PluginOutput describes the result of a plugin.
type PluginOutput struct {
	// interfaces is appends (the plugin creates the interface CNI_IFNAME or moves it in), modifies (it changes an
	// existing interface), passthrough (it does not change interfaces and returns its prevResult), none (an IPAM
	// plugin, which other plugins call) or deviceFiles (containers use the device through files, without an
	// interface).
	// +kubebuilder:validation:Enum=appends;modifies;passthrough;none;deviceFiles
	// +kubebuilder:default=appends
	// +optional
	Interfaces string `json:"interfaces,omitempty"`
	// devices is stays (the allocated device stays on the host, where pods may share it) or moves (it moves into the
	// pod). A plugin that moves devices runs in root steps only.
	// +kubebuilder:validation:Enum=stays;moves
	// +kubebuilder:default=stays
	// +optional
	Devices string `json:"devices,omitempty"`
}

// PluginQuirks are known deviations from the CNI specification.
type PluginQuirks struct {
	// delWithoutNetns describes how DEL is called after the pod's network namespace has ended: empty (CNI_NETNS is
	// empty, as the specification requires), stalePath (the old path is passed), skip (the plugin is not called).
	// +kubebuilder:validation:Enum=empty;stalePath;skip
	// +kubebuilder:default=empty
	// +optional
	DelWithoutNetns string `json:"delWithoutNetns,omitempty"`
	// leaksIPAM is true when DEL without a network namespace does not release the addresses; the driver then calls the
	// IPAM plugin itself.
	// +optional
	LeaksIPAM bool `json:"leaksIPAM,omitempty"`
	// delFailsWithoutInterface is true when DEL fails once the interface or its namespace no longer exists, although
	// only the addresses remain. The driver then releases them itself.
	// +optional
	DelFailsWithoutInterface bool `json:"delFailsWithoutInterface,omitempty"`
	// delNeedsInterface is true when DEL reads from the pod's interface which other state to remove, and leaves that
	// state if the interface no longer exists. The driver then provides a stand-in with the same name and addresses in
	// a temporary namespace.
	// +optional
	DelNeedsInterface bool `json:"delNeedsInterface,omitempty"`
	// checkUnsafe is true when CHECK fails on a healthy attachment or changes it. The driver then relies on its own
	// checks only.
	// +optional
	CheckUnsafe bool `json:"checkUnsafe,omitempty"`
}
