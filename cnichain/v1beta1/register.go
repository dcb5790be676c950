// Package v1beta1 contains the kinds NetworkTopology, CNIPluginSchema, AddressRange and AddressBlock in the API version
// networking.dra.io/v1beta1. The kinds have the same fields as in v1alpha1 (ADR 31).
//
// Invariant: its types are the v1alpha1 types under another version, so that the compiler guarantees
// that both have the same fields. Their fields also have the types from v1alpha1.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

type (
	// NetworkTopology is [v1alpha1.NetworkTopology] in this version.
	NetworkTopology = v1alpha1.NetworkTopology
	// NetworkTopologyList is a list of NetworkTopologies.
	NetworkTopologyList = v1alpha1.NetworkTopologyList
	// CNIPluginSchema is [v1alpha1.CNIPluginSchema] in this version.
	CNIPluginSchema = v1alpha1.CNIPluginSchema
	// CNIPluginSchemaList is a list of CNIPluginSchemas.
	CNIPluginSchemaList = v1alpha1.CNIPluginSchemaList
	// AddressRange is [v1alpha1.AddressRange] in this version.
	AddressRange = v1alpha1.AddressRange
	// AddressRangeList is a list of AddressRanges.
	AddressRangeList = v1alpha1.AddressRangeList
	// AddressBlock is [v1alpha1.AddressBlock] in this version.
	AddressBlock = v1alpha1.AddressBlock
	// AddressBlockList is a list of AddressBlocks.
	AddressBlockList = v1alpha1.AddressBlockList
)

// GroupVersion returns the API group and version of the kinds in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: v1alpha1.GroupVersion().Group, Version: "v1beta1"}
}

// AddToScheme registers the kinds in this package. A scheme that also contains v1alpha1 can read both versions, but
// cannot infer from an object's type in which version to write it, so clients use a scheme with only one of them.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := GroupVersion()
	scheme.AddKnownTypes(gv, &NetworkTopology{}, &NetworkTopologyList{}, &CNIPluginSchema{}, &CNIPluginSchemaList{},
		&AddressRange{}, &AddressRangeList{}, &AddressBlock{}, &AddressBlockList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
