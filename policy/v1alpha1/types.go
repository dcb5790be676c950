package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is the effect of a policy on the devices that it matches.
// +kubebuilder:validation:Enum=expose;exclude
type Action string

const (
	// ActionExpose offers the device for allocation.
	ActionExpose Action = "expose"
	// ActionExclude hides the device, even if other policies expose it.
	ActionExclude Action = "exclude"
)

// ConditionAccepted is true when a policy is valid and its expression compiles.
const ConditionAccepted = "Accepted"

// ConditionDevicesOffered is true when devices are published because of a policy that exposes devices.
const ConditionDevicesOffered = "DevicesOffered"

// DeviceExposurePolicy selects network devices of nodes and defines how they are offered for allocation. Devices that
// no policy matches are never offered.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=dep
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.devices`,description="devices that are offered because of the policy"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`,description="nodes that offer them"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
// +kubebuilder:printcolumn:name="Offered",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="DevicesOffered")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeviceExposurePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the administrator's configuration.
	Spec DeviceExposurePolicySpec `json:"spec"`
	// status is reported by the controller.
	// +optional
	Status DeviceExposurePolicyStatus `json:"status,omitempty"`
}

// DeviceExposurePolicyList is a list of policies.
// +kubebuilder:object:root=true
type DeviceExposurePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeviceExposurePolicy `json:"items"`
}

// DeviceExposurePolicySpec selects devices and defines how they are offered.
// +kubebuilder:validation:XValidation:rule="self.action != 'exclude' || !has(self.exposure)",message="exposure says how devices are offered, but action is exclude: remove exposure, or set action to expose"
// +kubebuilder:validation:XValidation:rule="self.action != 'expose' || has(self.exposure)",message="a policy that exposes devices needs exposure, with supportedCNIPlugins at least"
type DeviceExposurePolicySpec struct {
	// nodeSelector limits the policy to nodes with these labels. Default: all nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// priority decides among expose policies with the same deviceNameSuffix that match one device: the highest wins,
	// ties go to the name that sorts first.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority"`
	// selector selects devices.
	Selector DeviceSelector `json:"selector"`
	// action is expose (offer the devices) or exclude (hide them; overrides every expose policy).
	// +kubebuilder:default=expose
	// +optional
	Action Action `json:"action,omitempty"`
	// exposure defines how the devices are offered. Required with action expose, rejected with exclude.
	// +optional
	Exposure *Exposure `json:"exposure,omitempty"`
}

// DeviceSelector selects devices.
type DeviceSelector struct {
	// cel is an expression over one device that yields true or false, for example
	// device.attributes["dra.networking"].type == "bridge".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	CEL string `json:"cel"`
}

// Exposure defines how the selected devices are offered.
// +kubebuilder:validation:XValidation:rule="!self.?allowMultipleAllocations.orValue(false) || self.supportedCNIPlugins.exists(p, !p.?exclusive.orValue(false))",message="allowMultipleAllocations is true but every plugin is exclusive: set allowMultipleAllocations to false, or exclusive to false for a plugin that shares the device"
// +kubebuilder:validation:XValidation:rule="!(self.supportedCNIPlugins.exists(p, p.?exclusive.orValue(false)) && self.supportedCNIPlugins.exists(p, !p.?exclusive.orValue(false))) || (self.?allowMultipleAllocations.orValue(false) && has(self.capacity) && size(self.capacity) > 0)",message="exclusive and shared plugins in one policy need allowMultipleAllocations: true and a capacity"
// +kubebuilder:validation:XValidation:rule="self.supportedCNIPlugins.all(p, !has(p.consumePerAllocation) || p.consumePerAllocation.all(c, has(self.capacity) && c in self.capacity))",message="consumePerAllocation names a counter that capacity does not have: add it to capacity or remove it"
// +kubebuilder:validation:XValidation:rule="self.?allowMultipleAllocations.orValue(false) || !has(self.capacity) || self.capacity.all(c, c == 'bandwidth' || !has(self.capacity[c].requestPolicy))",message="a device that is not shared is taken as a whole, so only bandwidth has a requestPolicy: remove requestPolicy, or set allowMultipleAllocations to true"
// +kubebuilder:validation:XValidation:rule="!has(self.capacity) || self.capacity.all(c, size(c) <= 32 && c.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",message="the name of a counter is letters, digits and '_', starts with a letter or '_', and has at most 32 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.capacity) || self.capacity.all(c, !c.matches('^(?i:true|false|yes|no)$'))",message="the name of a counter is not true, false, yes or no: YAML reads y, n, on and off as these; choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.linkBandwidth) || !(has(self.capacity) && 'bandwidth' in self.capacity)",message="linkBandwidth lets claims choose an amount of the link and capacity[bandwidth] fixes it: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.linkBandwidth) || !self.?allowMultipleAllocations.orValue(false)",message="linkBandwidth is for virtual functions that are not shared: remove it, or set allowMultipleAllocations to false"
type Exposure struct {
	// deviceNameSuffix is appended to the interface name to form the device name. Policies with different suffixes
	// publish several entries for one device.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(-[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="a suffix is empty or '-' followed by lower-case letters, digits and '-', for example -macvlan"
	// +optional
	DeviceNameSuffix string `json:"deviceNameSuffix,omitempty"`
	// allowMultipleAllocations lets several claims share the device. Each takes a part of its capacity.
	// +optional
	AllowMultipleAllocations bool `json:"allowMultipleAllocations,omitempty"`
	// allowInUse lets a claim take an exclusive device on which the node itself has addresses, routes or routing rules.
	// The node loses them while a pod has the device. They are restored afterwards, until the next boot. Devices with a
	// default route or an address of the Node object, bridge ports, and devices below other links are never taken.
	// +optional
	AllowInUse bool `json:"allowInUse,omitempty"`
	// capacity is the capacity that claims on the device share, by counter name. For virtual functions that are not
	// shared, bandwidth (in Mbit/s) is the part of the physical function's link that each one takes; validValues offers
	// a choice.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Capacity map[string]Capacity `json:"capacity,omitempty"`
	// linkBandwidth lets claims choose the bandwidth of a virtual function, in Mbit/s. For each physical function with
	// a known speed, one more device is published, <interface>-bandwidth of type bandwidth. A claim requests an amount
	// from it in addition to the function, with matchAttribute: dra.networking/pfName. validRange or validValues and
	// the speed of the link limit the amount. It excludes capacity[bandwidth] and allowMultipleAllocations.
	// +optional
	LinkBandwidth *RequestPolicy `json:"linkBandwidth,omitempty"`
	// supportedCNIPlugins are the CNI plugins that may attach the device.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	SupportedCNIPlugins []CNIPlugin `json:"supportedCNIPlugins"`
	// exclusionGroup connects policies that match the same device but must not use it concurrently, for example macvlan
	// and ipvlan.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="an exclusion group is empty or lower-case letters, digits and '-', for example rx-handler"
	// +optional
	ExclusionGroup string `json:"exclusionGroup,omitempty"`
	// publish names discovered attributes that are published in addition to the default ones, if the device has them. A
	// value of more than 64 bytes is not published.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Enum=altNames;eswitchMode;kind;masterKind;parent;pfAddress;portName;rdmaDevices;rdmaLinkLayer;rdmaNetns;rdmaPKeys;rdmaPortGUID;rdmaRate;representor;representorName;switchID;totalVFs;vfLinkState;vfMAC;vfMaxTxRate;vfMinTxRate;vfQoS;vfSpoofCheck;vfTrust;vfVLAN;vlanID
	// +listType=set
	// +optional
	Publish []string `json:"publish,omitempty"`
	// resourceName is the resource name of the devices in NetworkAttachmentDefinitions (annotation
	// k8s.v1.cni.cncf.io/resourceName), such as example.com/sriov_vf. It is published with the attributes that Multus
	// reads: k8s.cni.cncf.io/resourceName, and k8s.cni.cncf.io/deviceID with the PCI address, or the interface name if
	// the device has no PCI address. Default: devices have neither attribute.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="a resource name has a domain and a name, such as example.com/sriov_vf"
	// +optional
	ResourceName string `json:"resourceName,omitempty"`
	// additionalAttributes are published in addition to the discovered attributes. Bare names belong to the domain
	// dra.networking.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	AdditionalAttributes map[string]AttributeValue `json:"additionalAttributes,omitempty"`
	// computedAttributes are published on the devices for which their expressions yield a value.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	ComputedAttributes []ComputedAttribute `json:"computedAttributes,omitempty"`
	// attributesByPCIAddress is a table of attributes that the machine does not report, such as the rail that a NIC is
	// cabled to. A virtual function without its own row uses the row of its physical function. additionalAttributes,
	// computedAttributes and the table have at most 16 names together, and each name is in one of them only.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=pciAddress
	// +optional
	AttributesByPCIAddress []PCIAddressAttributes `json:"attributesByPCIAddress,omitempty"`
}

// ComputedAttribute is an attribute that is computed from the discovered attributes of a device.
type ComputedAttribute struct {
	// name is the attribute's name. A bare name belongs to the domain dra.networking.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	Name string `json:"name"`
	// cel is an expression over one device, like the selector, that returns a string, an integer, a boolean, a version
	// (semver), or an optional of these. Devices for which it fails or returns no publishable value (optional.none(),
	// null or an empty string) do not have the attribute.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	CEL string `json:"cel"`
}

// PCIAddressAttributes is a row of the table of attributes.
type PCIAddressAttributes struct {
	// pciAddress is the device's PCI address in the form of sysfs, for example "0000:18:00.0".
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f][.][0-7]$')",message="a PCI address is domain:bus:device.function in lower-case hexadecimal digits, for example 0000:18:00.0"
	PCIAddress string `json:"pciAddress"`
	// attributes are the device's attributes. Bare names belong to the domain dra.networking. An attribute has the same
	// type in all rows.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Attributes map[string]AttributeValue `json:"attributes"`
}

// Amount is a number or a quantity, at most 2^63-1: 64, "64", "10M", "2500m". Exponents are rejected, because adding
// quantities with large exponents takes unbounded time.
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9]+([.][0-9]+)?([numkMGTPE]|[KMGTPE]i)?$')",message="an amount is a number without sign and exponent, with a suffix if need be: write it like 64, 10M or 2500m"
type Amount struct {
	resource.Quantity `json:"-"`
}

// Capacity is one counter of a device.
// +kubebuilder:validation:XValidation:rule="string(self.value).matches('[1-9]')",message="a counter is greater than zero: raise value, or remove the counter"
// +kubebuilder:validation:XValidation:rule="!has(self.requestPolicy) || !has(self.requestPolicy.default) || ![self.requestPolicy.default, self.value].all(a, string(a).matches('^[0-9.]+([a-zA-Z]i?)?$')) || quantity(string(self.requestPolicy.default)).compareTo(quantity(string(self.value))) <= 0",message="requestPolicy.default is greater than value, so no claim could be satisfied: lower it"
// +kubebuilder:validation:XValidation:rule="!has(self.requestPolicy) || !has(self.requestPolicy.validRange) || !has(self.requestPolicy.validRange.max) || ![self.requestPolicy.validRange.max, self.value].all(a, string(a).matches('^[0-9.]+([a-zA-Z]i?)?$')) || quantity(string(self.requestPolicy.validRange.max)).compareTo(quantity(string(self.value))) <= 0",message="requestPolicy.validRange.max is greater than value: lower it, or remove it"
type Capacity struct {
	// value is the total, as a quantity.
	Value Amount `json:"value"`
	// requestPolicy limits the amount that one claim may take.
	// +optional
	RequestPolicy *RequestPolicy `json:"requestPolicy,omitempty"`
}

// RequestPolicy limits the amount of a counter that one claim may take. validRange and validValues are mutually
// exclusive.
// +kubebuilder:validation:XValidation:rule="!(has(self.validRange) && has(self.validValues))",message="validRange and validValues exclude each other: keep one"
// +kubebuilder:validation:XValidation:rule="!(has(self.validRange) || has(self.validValues)) || has(self.default)",message="a request policy with validRange or validValues needs a default"
// +kubebuilder:validation:XValidation:rule="!has(self.validRange) || !has(self.default) || ![self.validRange.min, self.default].all(a, string(a).matches('^[0-9.]+([a-zA-Z]i?)?$')) || quantity(string(self.validRange.min)).compareTo(quantity(string(self.default))) <= 0",message="default is less than validRange.min: raise it, or lower min"
// +kubebuilder:validation:XValidation:rule="!has(self.validRange) || !has(self.validRange.max) || !has(self.default) || ![self.default, self.validRange.max].all(a, string(a).matches('^[0-9.]+([a-zA-Z]i?)?$')) || quantity(string(self.default)).compareTo(quantity(string(self.validRange.max))) <= 0",message="default is greater than validRange.max: lower it, or raise max"
// +kubebuilder:validation:XValidation:rule="!has(self.validValues) || !has(self.default) || !(self.validValues + [self.default]).all(a, string(a).matches('^[0-9.]+([a-zA-Z]i?)?$')) || self.validValues.exists(v, quantity(string(v)).compareTo(quantity(string(self.default))) == 0)",message="default is not one of validValues: add it there, or choose one of them"
type RequestPolicy struct {
	// default is the amount of a claim that requests none.
	// +optional
	Default *Amount `json:"default,omitempty"`
	// validRange accepts amounts between min and max in steps.
	// +optional
	ValidRange *ValidRange `json:"validRange,omitempty"`
	// validValues accepts only these amounts.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	ValidValues []Amount `json:"validValues,omitempty"`
}

// ValidRange is a range of amounts.
// +kubebuilder:validation:XValidation:rule="!has(self.step) || string(self.step).matches('[1-9]')",message="step is greater than zero: remove it to accept every amount"
type ValidRange struct {
	// min is the minimum.
	Min *Amount `json:"min"`
	// max is the maximum. Default: the counter's value.
	// +optional
	Max *Amount `json:"max,omitempty"`
	// step is the increment, counted from min, to which amounts are rounded up. It must be greater than zero.
	// +optional
	Step *Amount `json:"step,omitempty"`
}

// CNIPlugin is a CNI plugin that may attach the device.
type CNIPlugin struct {
	// name is the file name of the plugin's binary.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="a plugin is named by the bare file name of its binary, which starts with a letter and has letters, digits, '-', '_' and '.'"
	Name string `json:"name"`
	// exclusive means that the plugin takes the whole device.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`
	// consumePerAllocation is the amount of each counter that one claim takes by default.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	ConsumePerAllocation map[string]Amount `json:"consumePerAllocation,omitempty"`
}

// AttributeValue is a string, an integer or a boolean; exactly one field is set.
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
type AttributeValue struct {
	String *string `json:"-"`
	Int    *int64  `json:"-"`
	Bool   *bool   `json:"-"`
}

// DeviceExposurePolicyStatus is the state that the controller reports.
type DeviceExposurePolicyStatus struct {
	// conditions has Accepted: the policy is valid and its expression compiles; and, with action expose,
	// DevicesOffered: at least one device is published because of the policy.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// devices is the number of devices on all nodes that are published because of the policy. Absent with action
	// exclude, and while it is unknown.
	// +optional
	Devices *int32 `json:"devices,omitempty"`
	// nodes is the number of nodes with such a device.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
}
