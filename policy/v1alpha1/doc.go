// Package v1alpha1 holds the DeviceExposurePolicy, the custom resource with which a cluster administrator says which
// network devices of which nodes are offered for allocation, how they are shared and what excludes what.
//
// The rule of this package: it describes and validates, it decides nothing. Resolution is package policy's.
//
// +kubebuilder:object:generate=true
// +groupName=networking.dra.io
package v1alpha1
