package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Condition types of a NetworkTopology.
const (
	// ConditionAccepted is true when the topology is valid.
	ConditionAccepted = "Accepted"
	// ConditionClassesReady is true when a DeviceClass exists for every root step.
	ConditionClassesReady = "ClassesReady"
)

// Labels of generated DeviceClasses.
const (
	LabelTopology    = "networking.dra.io/topology"
	LabelStep        = "networking.dra.io/step"
	LabelTopologyUID = "networking.dra.io/topology-uid"
)

// AnnotationDescription is the annotation that contains the topology's description in its DeviceClasses.
const AnnotationDescription = "networking.dra.io/description"

// NetworkTopology is a DAG of CNI plugins. Steps without dependOn are root steps: each attaches a device that was
// allocated through the DeviceClass <topology>-<step>. The others only run CNI plugins.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ntopo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Classes",type=string,JSONPath=`.status.conditions[?(@.type=="ClassesReady")].status`
// +kubebuilder:printcolumn:name="Device classes",type=string,JSONPath=`.status.deviceClasses`
// +kubebuilder:printcolumn:name="Claim parameters",type=string,JSONPath=`.status.claimParameters`,description="the parameters that a claim may set"
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="CNI plugins",type=string,priority=1,JSONPath=`.status.plugins`,description="the plugins of the steps, in their order"
// +kubebuilder:printcolumn:name="Classes reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ClassesReady")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a topology has at most 63 characters"
type NetworkTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the DAG.
	Spec NetworkTopologySpec `json:"spec"`
	// status is reported by the controller.
	// +optional
	Status NetworkTopologyStatus `json:"status,omitempty"`
}

// NetworkTopologyList is a list of topologies.
// +kubebuilder:object:root=true
type NetworkTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkTopology `json:"items"`
}

// NetworkTopologySpec is a DAG of CNI plugins.
// +kubebuilder:validation:XValidation:rule="!has(self.attachment) || self.steps.all(s, !(has(s.dependOn) && size(s.dependOn) > 0) && !has(s.driver) && !has(s.rdma) && !has(s.deviceNodes) && !has(s.limits) && !has(s.ifName) && !has(s.network) && !has(s.prevResult) && !has(s.claimParameters) && !has(s.config))",message="with attachment External a step has only name, type, selector and extendedResourceName: the component that attaches its device configures the rest"
type NetworkTopologySpec struct {
	// attachment is External if the pod network, such as Multus with a NetworkAttachmentDefinition, attaches the
	// devices. The driver then runs no plugins: it reserves the devices for the claim, reports their identities, and
	// verifies that they return to the host unchanged. Each step takes a device, and type names the plugin that
	// attaches it. Default: the driver runs the steps.
	// +optional
	Attachment Attachment `json:"attachment,omitempty"`
	// description explains to authors of claims what a pod gets, and its purpose. It becomes the annotation
	// networking.dra.io/description of the DeviceClasses.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
	// allowedNamespaces selects, by labels, the namespaces whose claims may use the topology. Default: all.
	// +optional
	AllowedNamespaces *metav1.LabelSelector `json:"allowedNamespaces,omitempty"`
	// steps are the nodes of the DAG. A step is listed after the steps that it depends on.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(s, self.exists_one(t, t.name == s.name))",message="step names must be unique",messageExpression="'step names must be unique: ' + self.transformList(i, s, !self.exists_one(t, t.name == s.name), s.name)[0] + ' is the name of more than one'"
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.dependOn) || s.dependOn.all(d, self.exists(t, t.name == d)))",message="dependOn names a step that does not exist",messageExpression="self.transformList(i, s, has(s.dependOn) && !s.dependOn.all(d, self.exists(t, t.name == d)), 'step ' + s.name + ': dependOn names step \"' + s.dependOn.filter(d, !self.exists(t, t.name == d))[0] + '\", which does not exist')[0]"
	// +kubebuilder:validation:XValidation:rule="self.all(i, s, !has(s.dependOn) || s.dependOn.all(d, d == s.name || !self.exists(t, t.name == d) || self.exists(j, t, j < i && t.name == d)))",message="a step must come after every step that it depends on: move it down, below the steps in its dependOn; if they depend on each other, remove one from dependOn",messageExpression="'a step must come after every step that it depends on: move ' + self.transformList(i, s, has(s.dependOn) && !s.dependOn.all(d, d == s.name || !self.exists(t, t.name == d) || self.exists(j, t, j < i && t.name == d)), s.name + ' down, below ' + s.dependOn.join(', '))[0] + '; if they depend on each other, remove one from dependOn'"
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.dependOn) || s.dependOn.all(d, !self.exists(t, t.name == d && has(t.driver))))",message="nothing can depend on a step with a driver: it makes no interface",messageExpression="self.transformList(i, s, has(s.dependOn) && s.dependOn.exists(d, self.exists(t, t.name == d && has(t.driver))), 'step ' + s.name + ': nothing can depend on a step with a driver: it makes no interface; dependOn is ' + s.dependOn.join(', '))[0]"
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.extendedResourceName) || self.exists_one(t, has(t.extendedResourceName) && t.extendedResourceName == s.extendedResourceName))",message="an extended resource represents the devices of one step: give each step an extendedResourceName of its own"
	// +listType=atomic
	Steps []Step `json:"steps"`
}

// Attachment names the component that attaches devices to pods.
// +kubebuilder:validation:Enum=External
type Attachment string

// AttachmentExternal is the pod's network, which the container runtime configures.
const AttachmentExternal Attachment = "External"

// Step runs one CNI plugin.
// +kubebuilder:validation:XValidation:rule="!has(self.dependOn) || !(self.name in self.dependOn)",message="a step depends on itself: remove its name from its dependOn",messageExpression="'step ' + self.name + ' depends on itself: remove its name from its dependOn'"
// +kubebuilder:validation:XValidation:rule="(has(self.dependOn) && size(self.dependOn) > 0) || has(self.selector)",message="a step without dependOn is a root step and needs selector.cel, which selects its devices"
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || (!(has(self.dependOn) && size(self.dependOn) > 0) && !has(self.ifName))",message="driver is for root steps, and leaves the pod no interface that ifName could name: remove one of them"
// +kubebuilder:validation:XValidation:rule="!(has(self.dependOn) && size(self.dependOn) > 0) || !has(self.selector)",message="a step with dependOn takes no device of its own: remove selector, or dependOn"
// +kubebuilder:validation:XValidation:rule="!(has(self.rdma) || has(self.limits) || has(self.deviceNodes)) || !(has(self.dependOn) && size(self.dependOn) > 0)",message="rdma, deviceNodes and limits are for root steps, which take a device: move them to the step that this one depends on"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResourceName) || !(has(self.dependOn) && size(self.dependOn) > 0)",message="extendedResourceName is for root steps, which have a DeviceClass: move it to the step that this one depends on"
// +kubebuilder:validation:XValidation:rule="!(has(self.rdma) && has(self.driver))",message="a device that is bound to another driver has no RDMA devices: remove rdma or driver"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || has(self.rdma) || !(has(self.limits.rdmaHandles) || has(self.limits.rdmaObjects))",message="rdmaHandles and rdmaObjects limit the use of RDMA devices, which the step does not provide: set rdma, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.addressRange) || !has(self.network)",message="the steps of an addressRange have one CNI network, so that no address is assigned twice: remove network"
// +kubebuilder:validation:XValidation:rule="!has(self.addressRange) || !has(self.claimParameters) || !('ips' in self.claimParameters)",message="an addressRange assigns addresses of the pod's node, which a claim cannot know: remove ips from claimParameters"
type Step struct {
	// name is unique in the topology.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// type is the file name of the CNI plugin's binary.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Type string `json:"type"`
	// dependOn names the steps that must complete before this one. Empty: a root step.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=40
	// +listType=set
	// +optional
	DependOn []string `json:"dependOn,omitempty"`
	// selector limits the devices that a root step accepts.
	// +optional
	Selector *StepSelector `json:"selector,omitempty"`
	// extendedResourceName is the name of an extended resource, such as example.com/sriov_vf. Pods without a claim
	// request the device of a root step by that name in resources.limits of a container, on nodes where no device
	// plugin offers the same resource. DeviceClasses of a cluster must not share a name. Pods can always use
	// deviceclass.resource.kubernetes.io/<topology>-<step> as well. Default: only that name.
	// +kubebuilder:validation:MaxLength=308
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('kubernetes.io/') && !self.startsWith('requests.')",message="names that contain kubernetes.io/ or begin with requests. belong to Kubernetes: use a domain of your own"
	// +optional
	ExtendedResourceName string `json:"extendedResourceName,omitempty"`
	// driver is the kernel driver that the device of a root step is bound to while a pod has it, for applications with
	// a user-space driver. The pod gets device nodes instead of an interface; the plugin still applies the settings of
	// the virtual function through the physical function. A device that already uses the driver keeps it. Default: the
	// device's own driver.
	// +kubebuilder:validation:Enum=vfio-pci
	// +optional
	Driver string `json:"driver,omitempty"`
	// rdma adds the RDMA devices behind a root step's device to the containers that reference the claim: the verbs
	// files (/dev/infiniband/uverbsN) and the file of the connection manager (rdma_cm). If an RDMA device belongs to
	// one network namespace ("rdma system": netns exclusive), it moves into the pod with the interface. Claims for a
	// device without RDMA devices are rejected. Default: no RDMA devices.
	// +optional
	RDMA *StepRDMA `json:"rdma,omitempty"`
	// deviceNodes are further device files for the containers that reference the claim of a root step. DPDK
	// applications need both for a virtio-user port. If the node's kernel does not have them, the pod waits, and an
	// event names the kernel module to load. Default: none.
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	DeviceNodes []DeviceNode `json:"deviceNodes,omitempty"`
	// limits are resource limits of the containers that reference the claim of a root step. A claim cannot change them.
	// Default: the limits of the container runtime.
	// +optional
	Limits *StepLimits `json:"limits,omitempty"`
	// ifName is the name of the interface in the pod (CNI_IFNAME). Default: config.name or config.dev of a derived
	// step; the parent's interface if the plugin creates none; otherwise the next free net1, net2, ...
	// +kubebuilder:validation:MaxLength=253
	// +optional
	IfName string `json:"ifName,omitempty"`
	// network is the CNI network name, under which IPAM plugins store leases. Default: <topology>.<step>, followed by
	// an identifier of the claim if the plugin creates no interface.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*$`
	// +optional
	Network string `json:"network,omitempty"`
	// addressRange names an AddressRange. The driver passes the node's blocks of the range to the IPAM plugin, in the
	// form that the plugin's schema describes, and uses the range's name as the CNI network. Default: the addresses in
	// config.ipam.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	AddressRange string `json:"addressRange,omitempty"`
	// defaultRoute allows the step to replace the pod's default route, which usually goes through the cluster network.
	// Without it, a pod whose default route a step replaces does not start. Default: false.
	// +optional
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// prevResult selects whether the plugin receives the results of the steps in dependOn. Default: the setting of the
	// plugin's schema; parents if it has none.
	// +optional
	PrevResult PrevResult `json:"prevResult,omitempty"`
	// claimParameters are the settings of the step's interface that a claim may choose, in an opaque configuration of
	// kind ClaimParameters. Default: none, because users of a namespace write claims.
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	// +optional
	ClaimParameters []ClaimParameter `json:"claimParameters,omitempty"`
	// config is the plugin's configuration without type, name, cniVersion and prevResult, which the driver sets.
	// Strings may contain templates, for example {{ vf0.interfaceName }}.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// ClaimParameter is a setting of an interface that a claim may choose.
// +kubebuilder:validation:Enum=mac;ips;interfaceName
type ClaimParameter string

const (
	// ClaimMAC is the interface's MAC address.
	ClaimMAC ClaimParameter = "mac"
	// ClaimIPs are its addresses.
	ClaimIPs ClaimParameter = "ips"
	// ClaimInterfaceName is its name in the pod.
	ClaimInterfaceName ClaimParameter = "interfaceName"
)

// ClaimParameterNames returns all claim parameters.
func ClaimParameterNames() []ClaimParameter {
	return []ClaimParameter{ClaimMAC, ClaimIPs, ClaimInterfaceName}
}

// AllowedParameters returns the parameters that a claim may set in at least one step, sorted and without duplicates. A
// parameter that only later steps allow is followed by the step that a claim must name, as in "mac (step: addr)".
func (s *NetworkTopologySpec) AllowedParameters() []string {
	var allowed []string
	for _, parameter := range slices.Sorted(slices.Values(ClaimParameterNames())) {
		if text := s.allowed(parameter); text != "" {
			allowed = append(allowed, text)
		}
	}
	return allowed
}

// allowed returns the text for a parameter that a claim may set, or "" if no step allows it.
func (s *NetworkTopologySpec) allowed(parameter ClaimParameter) string {
	var later []string
	for i := range s.Steps {
		step := &s.Steps[i]
		switch {
		case !slices.Contains(step.ClaimParameters, parameter):
		case len(step.DependOn) == 0:
			return string(parameter)
		default:
			later = append(later, step.Name)
		}
	}
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (step: %s)", parameter, strings.Join(later, " or "))
}

// Plugins returns the CNI plugins that the steps use, without duplicates, in step order.
func (s *NetworkTopologySpec) Plugins() []string {
	var plugins []string
	for i := range s.Steps {
		if name := s.Steps[i].Type; !slices.Contains(plugins, name) {
			plugins = append(plugins, name)
		}
	}
	return plugins
}

// DeviceNode is a device file: vhost-net (/dev/vhost-net) or tun (/dev/net/tun).
// +kubebuilder:validation:Enum=vhost-net;tun
type DeviceNode string

const (
	// DeviceNodeVhostNet is the file of the kernel's backend for virtio networks.
	DeviceNodeVhostNet DeviceNode = "vhost-net"
	// DeviceNodeTun is the file through which applications create tun and tap interfaces in their network namespace.
	DeviceNodeTun DeviceNode = "tun"
)

// Path returns the path of the device file on nodes and in containers.
func (n DeviceNode) Path() string {
	if n == DeviceNodeTun {
		return "/dev/net/tun"
	}
	return "/dev/" + string(n)
}

// StepRDMA selects the files of RDMA devices that containers get.
type StepRDMA struct {
	// managementDevices adds the files for management datagrams (/dev/infiniband/umadN and issmN). With them, an
	// application can change the configuration of an InfiniBand fabric. Default: false.
	// +optional
	ManagementDevices bool `json:"managementDevices,omitempty"`
}

// StepLimits are resource limits of containers.
type StepLimits struct {
	// lockedMemory is the memory that a process may lock (RLIMIT_MEMLOCK), which RDMA and vfio applications need to
	// register buffers with the device. It is a quantity of bytes such as 8Gi, or unlimited. Processes with
	// CAP_IPC_LOCK are not limited.
	// +kubebuilder:validation:Pattern=`^(unlimited|[1-9][0-9]*([KMGT]i?)?|[1-9][0-9]*k)$`
	// +kubebuilder:validation:MaxLength=32
	// +optional
	LockedMemory string `json:"lockedMemory,omitempty"`
	// rdmaHandles is the number of times that each RDMA device of the step may be open in a container concurrently
	// (hca_handle of the cgroup's rdma.max).
	// +kubebuilder:validation:Minimum=1
	// +optional
	RDMAHandles *int32 `json:"rdmaHandles,omitempty"`
	// rdmaObjects is the number of objects, such as queue pairs and memory regions, that a container may have on each
	// RDMA device of the step (hca_object of the cgroup's rdma.max).
	// +kubebuilder:validation:Minimum=1
	// +optional
	RDMAObjects *int32 `json:"rdmaObjects,omitempty"`
}

// StepSelector selects devices.
type StepSelector struct {
	// cel is an expression over one device that yields true or false.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	CEL string `json:"cel"`
}

// PrevResult selects the prevResult that a plugin receives.
// +kubebuilder:validation:Enum=none;parents
type PrevResult string

const (
	// PrevResultNone passes no prevResult.
	PrevResultNone PrevResult = "none"
	// PrevResultParents passes the merged results of the steps in dependOn.
	PrevResultParents PrevResult = "parents"
)

// NetworkTopologyStatus is the state that the controller reports.
type NetworkTopologyStatus struct {
	// conditions has Accepted and ClassesReady.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// deviceClasses are the names of the DeviceClasses, one for each root step, that a claim must name.
	// +listType=atomic
	// +optional
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// claimParameters are the parameters that claims may set. A parameter that only later steps allow is followed by
	// the step that the claim must name, as in "mac (step: addr)".
	// +listType=atomic
	// +optional
	ClaimParameters []string `json:"claimParameters,omitempty"`
	// plugins are the CNI plugins of the steps, in the order of their first use.
	// +listType=atomic
	// +optional
	Plugins []string `json:"plugins,omitempty"`
}
