// Package v1alpha1 contains the API types for NetworkTopology, a DAG of CNI plugins that a platform team writes; for
// CNIPluginSchema, the description of one plugin; and for the opaque parameters that a generated DeviceClass uses to
// refer to a step in a topology.
//
// Invariant: it contains only wire types. Package cnichain validates and compiles them.
//
// +kubebuilder:object:generate=true
// +groupName=networking.dra.io
package v1alpha1
