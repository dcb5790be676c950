package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNIPluginSchema is the contract of one CNI plugin as data: which parameter names the allocated device, whether it
// makes an interface, what it wants as prevResult. Schemas of well-known plugins are built in; one in the cluster
// replaces the built-in one of the same type, so that a new plugin needs no new driver.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cnischema
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.cniType`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CNIPluginSchema struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the contract.
	Spec CNIPluginSchemaSpec `json:"spec"`
}

// CNIPluginSchemaList is a list of schemas.
// +kubebuilder:object:root=true
type CNIPluginSchemaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNIPluginSchema `json:"items"`
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
	// input is what the plugin wants.
	// +optional
	Input PluginInput `json:"input,omitempty"`
	// output is what the plugin makes.
	// +optional
	Output PluginOutput `json:"output,omitempty"`
	// quirks are known deviations from the CNI specification.
	// +optional
	Quirks PluginQuirks `json:"quirks,omitempty"`
}

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

// PluginInput is what a plugin wants.
type PluginInput struct {
	// prevResult is none, optional or required. Steps get one for optional and required.
	// +kubebuilder:validation:Enum=none;optional;required
	// +kubebuilder:default=none
	// +optional
	PrevResult string `json:"prevResult,omitempty"`
}

// PluginOutput is what a plugin makes.
type PluginOutput struct {
	// interfaces is creates (the plugin makes or moves in the interface CNI_IFNAME) or modifies (it works on one that
	// is there).
	// +kubebuilder:validation:Enum=creates;modifies
	// +kubebuilder:default=creates
	// +optional
	Interfaces string `json:"interfaces,omitempty"`
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
	// delFailsWithoutInterface is true when DEL is an error once the interface or its namespace is gone, although nothing is
	// left but the addresses, which the driver then releases itself.
	// +optional
	DelFailsWithoutInterface bool `json:"delFailsWithoutInterface,omitempty"`
	// delNeedsInterface is true when DEL finds out from the pod's interface what to remove elsewhere, and leaves that when
	// the interface is gone; the driver then gives it another one of the same name and addresses, in a namespace of its own.
	// +optional
	DelNeedsInterface bool `json:"delNeedsInterface,omitempty"`
	// checkUnsafe is true when CHECK fails on a healthy attachment, or changes it: the driver then only looks itself.
	// +optional
	CheckUnsafe bool `json:"checkUnsafe,omitempty"`
}
