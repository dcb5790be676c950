// Package v1alpha1 holds the API types of NetworkTopology, a DAG of CNI plugins that a platform team writes; of
// CNIPluginSchema, the description of one plugin; and of the opaque parameters by which a generated DeviceClass refers
// to a topology's step.
//
// The rule of this package: it has wire types only. Package cnichain validates and compiles them.
//
// +kubebuilder:object:generate=true
// +groupName=networking.dra.io
package v1alpha1
