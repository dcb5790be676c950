package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DriverName is the name of the DRA driver and the domain of its attributes.
const DriverName = "dra.networking"

// GroupVersion returns the API group and version of the types in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "networking.dra.io", Version: "v1alpha1"}
}

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := GroupVersion()
	scheme.AddKnownTypes(gv, &NetworkTopology{}, &NetworkTopologyList{}, &CNIPluginSchema{}, &CNIPluginSchemaList{},
		&AddressRange{}, &AddressRangeList{}, &AddressBlock{}, &AddressBlockList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
