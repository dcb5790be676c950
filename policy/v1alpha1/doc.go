// Package v1alpha1 contains DeviceExposurePolicy, the custom resource that a cluster administrator uses to define which
// network devices on which nodes are offered for allocation, how they are shared, and which uses are mutually
// exclusive.
//
// Invariant: it describes and validates policies, but decides nothing. Package policy applies them.
//
// +kubebuilder:object:generate=true
// +groupName=networking.dra.io
package v1alpha1
