package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the API group and version of the types in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "networking.dra.io", Version: "v1alpha1"}
}

// AddToScheme registers the types in this package.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := GroupVersion()
	scheme.AddKnownTypes(gv, &DeviceExposurePolicy{}, &DeviceExposurePolicyList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
