// Package v1beta1 defines the DeviceExposurePolicy of networking.dra.io/v1beta1, which has the same fields as v1alpha1
// (ADR 31).
//
// Invariant: its types are the v1alpha1 types under another version, so that the compiler guarantees
// that both have the same fields. Their fields also have the types from v1alpha1.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

type (
	// DeviceExposurePolicy is [v1alpha1.DeviceExposurePolicy] in this version.
	DeviceExposurePolicy = v1alpha1.DeviceExposurePolicy
	// DeviceExposurePolicyList is a list of DeviceExposurePolicies.
	DeviceExposurePolicyList = v1alpha1.DeviceExposurePolicyList
)

// GroupVersion returns the API group and version of the kinds in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: v1alpha1.GroupVersion().Group, Version: "v1beta1"}
}

// AddToScheme registers the kinds in this package. A scheme that also contains v1alpha1 can read both versions, but
// cannot infer from an object's type in which version to write it, so clients use a scheme with only one of them.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := GroupVersion()
	scheme.AddKnownTypes(gv, &DeviceExposurePolicy{}, &DeviceExposurePolicyList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
