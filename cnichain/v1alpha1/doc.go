// Package v1alpha1 holds the NetworkTopology, a DAG of CNI plugins that a platform team writes; the CNIPluginSchema,
// the contract of one plugin as data; and the opaque parameters by which a generated DeviceClass refers to a topology's
// step.
//
// The rule of this package: wire types only. Validation and compilation are package cnichain's.
//
// +kubebuilder:object:generate=true
// +groupName=networking.dra.io
package v1alpha1
