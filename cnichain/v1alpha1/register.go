package v1alpha1

import (
	"slices"
	"strings"

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

// ServedVersions returns the versions that the API server serves for the kinds in the group, starting with the stored
// version. All of them have the same structure as the types in this package (ADR 31).
func ServedVersions() []schema.GroupVersion {
	stored := GroupVersion()
	return []schema.GroupVersion{stored, {Group: stored.Group, Version: "v1beta1"}}
}

// servedNames returns a list of the served versions for use in a message.
func servedNames() string {
	var names []string
	for _, gv := range ServedVersions() {
		names = append(names, gv.String())
	}
	return strings.Join(names, ", ")
}

// IsServed reports whether apiVersion is a served version in the group.
func IsServed(apiVersion string) bool {
	return slices.ContainsFunc(ServedVersions(), func(gv schema.GroupVersion) bool { return gv.String() == apiVersion })
}

// AddToScheme registers the types in this package.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := GroupVersion()
	scheme.AddKnownTypes(gv, &NetworkTopology{}, &NetworkTopologyList{}, &CNIPluginSchema{}, &CNIPluginSchemaList{},
		&AddressRange{}, &AddressRangeList{}, &AddressBlock{}, &AddressBlockList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
