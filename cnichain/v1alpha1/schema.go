package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNIPluginSchema is the contract of one CNI plugin as data: its parameters, which of them names the allocated device,
// whether it makes an interface, what it wants as prevResult. Topologies are checked against it when they are written.
// Schemas of well-known plugins are built in; one in the cluster replaces the built-in one of the same type, so that a
// new plugin needs no new driver.
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
	// status is what the controller found.
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

// CNIPluginSchemaStatus is what the controller found.
type CNIPluginSchemaStatus struct {
	// conditions has Accepted: the schema is valid. What an invalid one says of parameters is not used.
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
	// deviceParameters say which parameter names the allocated device. The first whose attribute is known is used.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	DeviceParameters []DeviceParameter `json:"deviceParameters,omitempty"`
	// config are the parameters of the plugin's configuration; of an IPAM plugin, those of ipam. Without it every
	// parameter is taken.
	// +optional
	Config *PluginConfig `json:"config,omitempty"`
	// input is what the plugin wants.
	// +optional
	Input PluginInput `json:"input,omitempty"`
	// output is what the plugin makes.
	// +optional
	Output PluginOutput `json:"output,omitempty"`
	// addressBlocks says how an IPAM plugin is given the addresses of a node. Without it no step can use the plugin
	// with an addressRange.
	// +optional
	AddressBlocks *AddressBlocks `json:"addressBlocks,omitempty"`
	// capabilities are the keys of the CNI runtime configuration that the plugin obeys and claims may set where a
	// topology allows it: mac; ips of an IPAM plugin (CNI conventions, "Dynamic Plugin specific fields").
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	Capabilities []Capability `json:"capabilities,omitempty"`
	// conflictsWith are the CNI types that can't work on the same interface as this one. It holds in both directions.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	ConflictsWith []string `json:"conflictsWith,omitempty"`
	// hostPaths are files and folders of the host that the plugin needs, beside /var/lib/cni and /run/cni: the driver's
	// pod must mount them.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^(/[^/]+)+$`
	// +listType=set
	// +optional
	HostPaths []string `json:"hostPaths,omitempty"`
	// linkTypes are the types of links that the kernel must make for every use of the plugin, as "ip -details link"
	// shows them, such as vlan. A node whose kernel does not make one offers no devices for the plugin, and refuses
	// claims with such a step; netdra doctor names what is missing.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=31
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9_-]*$`
	// +listType=set
	// +optional
	LinkTypes []string `json:"linkTypes,omitempty"`
	// leavesNoFiles is true when all that ADD does ends with the kernel, as links, addresses and rules do: the plugin
	// writes no file that is still there when the machine boots again. Where it is wrongly true, a machine that loses its
	// power while a pod starts keeps files of the plugin that nobody removes. It saves a wait for the disk before each
	// call. What its IPAM plugin does is said in the schema of that.
	// +optional
	LeavesNoFiles bool `json:"leavesNoFiles,omitempty"`
	// podNetworks is set for a plugin that attaches a pod only to networks that an annotation of the pod selects.
	// +optional
	PodNetworks *PodNetworks `json:"podNetworks,omitempty"`
	// remark warns the author of every topology that uses the plugin of a danger that nothing else shows. It is one
	// line, and shown in the condition Accepted of those topologies, in a warning of the webhook, and by netdra.
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
	// CapabilityMAC is the MAC address that the interface shall have.
	CapabilityMAC Capability = "mac"
	// CapabilityIPs are the addresses that it shall have, with their prefix lengths.
	CapabilityIPs Capability = "ips"
)

// DeviceParameter is a parameter that names the allocated device.
type DeviceParameter struct {
	// parameter is the key in the plugin's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Parameter string `json:"parameter"`
	// attribute is the device attribute that is its value.
	// +kubebuilder:validation:Enum=ifName;pciAddress
	Attribute string `json:"attribute"`
	// onlyExclusive sets the parameter only when the device was allocated exclusively.
	// +optional
	OnlyExclusive bool `json:"onlyExclusive,omitempty"`
}

// AddressBlocks says how an IPAM plugin is given addresses: in a parameter that is a list of lists, one for each IP
// family, of each of which it gives a pod one address. The elements of the inner lists are objects, each of which is a
// run of addresses; one run may stand beside the parameter. What topologies write there is checked: no list is empty or
// of two families, networks have no bits after their prefix and room for pods, and no address is in two runs.
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
	// excludes are further parameters of the plugin that a step with an addressRange may not have: those that would add
	// addresses, and that would have the plugin look elsewhere for what it has given.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Excludes []string `json:"excludes,omitempty"`
}

// PluginConfig are the parameters of a plugin. What is not among them is refused, but for what every plugin may be
// given: name, dev, dns, args, capabilities and runtimeConfig.
type PluginConfig struct {
	// properties are the parameters by name.
	// +kubebuilder:validation:MaxProperties=128
	// +optional
	Properties map[string]Parameter `json:"properties,omitempty"`
	// required are the parameters that must be given, by the topology or as one of deviceParameters.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Required []string `json:"required,omitempty"`
}

// ParameterType is a type of JSON.
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

// ParameterFormat is a form of strings that a regular expression does not describe well.
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
	// Unreadable is what is wrong with a parameter that cannot be read, and Unknown are fields that no parameter has.
	// Neither is part of the object.
	Unreadable string   `json:"-"`
	Unknown    []string `json:"-"`

	// type is the type of the value. Empty: any value.
	// +optional
	Type ParameterType `json:"type,omitempty"`
	// enum are the values that a string may have.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	// +optional
	Enum []string `json:"enum,omitempty"`
	// pattern is a regular expression (RE2) that a string must match somewhere; ^ and $ hold it to the whole.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Pattern string `json:"pattern,omitempty"`
	// format is what a string must be: ip (an IPv4 or IPv6 address), cidr (one with a prefix length), or mac (six
	// octets in hexadecimal with colons). Templates are not held against it.
	// +optional
	Format ParameterFormat `json:"format,omitempty"`
	// minimum is the least number.
	// +optional
	Minimum *int64 `json:"minimum,omitempty"`
	// maximum is the greatest number.
	// +optional
	Maximum *int64 `json:"maximum,omitempty"`
	// items is what the elements of an array are, of the same form as this. Empty: anything.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Items *Parameter `json:"items,omitempty"`
	// properties are the fields of an object, of the same form as this. Other fields are refused, but for what
	// additionalProperties allows. An object with neither may have any fields.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Properties map[string]Parameter `json:"properties,omitempty"`
	// additionalProperties is what fields of an object are that properties doesn't name, of the same form as this.
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

// PodNetworks says how a plugin finds out from its pod what to attach. The annotation is a list of networks as in the
// Network Custom Resource Definition De-facto Standard of the Network Plumbing Working Group, section 4.1.
type PodNetworks struct {
	// annotation is the pod's annotation that selects networks, such as k8s.v1.cni.cncf.io/networks. A pod that does not
	// select the network of a step is refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Annotation string `json:"annotation"`
	// parameter is the parameter of the plugin that names the network, as namespace/name. Topologies must give it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Parameter string `json:"parameter"`
	// interfaceNames is any (the plugin takes every name) or selected (only that which the annotation gives the
	// network's interface, or else net<n> for the n-th network of the annotation).
	// +kubebuilder:validation:Enum=any;selected
	// +kubebuilder:default=any
	// +optional
	InterfaceNames string `json:"interfaceNames,omitempty"`
	// defined are the parameters that are written in the NetworkAttachmentDefinition of the network and need not be
	// repeated in topologies, and with them the CNI network name. The driver reads it when a claim is prepared. Empty:
	// the network need not have one.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Defined []string `json:"defined,omitempty"`
}

// PluginInput is what a plugin wants.
type PluginInput struct {
	// prevResult is none, optional or required. Steps get one for optional and required.
	// +kubebuilder:validation:Enum=none;optional;required
	// +kubebuilder:default=none
	// +optional
	PrevResult string `json:"prevResult,omitempty"`
	// interfaces says how many interfaces of earlier steps a derived step works on. A step that makes none stands for
	// those of the steps that it depends on.
	// +optional
	Interfaces InterfaceCount `json:"interfaces,omitempty"`
}

// InterfaceCount bounds a number of interfaces.
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min is greater than max: no number of interfaces would be allowed"
type InterfaceCount struct {
	// min is the least number. Default: none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Min *int32 `json:"min,omitempty"`
	// max is the greatest number. Default: any.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Max *int32 `json:"max,omitempty"`
}

// PluginOutput is what a plugin makes.
type PluginOutput struct {
	// interfaces is appends (the plugin makes or moves in the interface CNI_IFNAME), modifies (it changes one that is
	// there), passthrough (it leaves the pod's interfaces alone and returns what it was given) or none (an IPAM plugin,
	// which others call).
	// +kubebuilder:validation:Enum=appends;modifies;passthrough;none
	// +kubebuilder:default=appends
	// +optional
	Interfaces string `json:"interfaces,omitempty"`
	// devices says what becomes of the allocated device: stays (on the host, where others may share it) or moves (into
	// the pod). A plugin that moves devices works in root steps only.
	// +kubebuilder:validation:Enum=stays;moves
	// +kubebuilder:default=stays
	// +optional
	Devices string `json:"devices,omitempty"`
}

// PluginQuirks are known deviations from the CNI specification.
type PluginQuirks struct {
	// delWithoutNetns says how DEL is called when the pod's network namespace is gone: empty (CNI_NETNS is empty, as
	// the specification says), stalePath (the old path is passed), skip (the plugin is not called).
	// +kubebuilder:validation:Enum=empty;stalePath;skip
	// +kubebuilder:default=empty
	// +optional
	DelWithoutNetns string `json:"delWithoutNetns,omitempty"`
	// leaksIPAM is true when DEL without a network namespace does not release the addresses; the driver then calls the
	// IPAM plugin itself.
	// +optional
	LeaksIPAM bool `json:"leaksIPAM,omitempty"`
	// delFailsWithoutInterface is true when DEL is an error once the interface or its namespace is gone, although
	// nothing is left but the addresses, which the driver then releases itself.
	// +optional
	DelFailsWithoutInterface bool `json:"delFailsWithoutInterface,omitempty"`
	// delNeedsInterface is true when DEL finds out from the pod's interface what to remove elsewhere, and leaves that
	// when the interface is gone; the driver then gives it another one of the same name and addresses, in a namespace
	// of its own.
	// +optional
	DelNeedsInterface bool `json:"delNeedsInterface,omitempty"`
	// checkUnsafe is true when CHECK fails on a healthy attachment, or changes it: the driver then only looks itself.
	// +optional
	CheckUnsafe bool `json:"checkUnsafe,omitempty"`
}
