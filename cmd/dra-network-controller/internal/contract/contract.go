// Package contract validates CNIPluginSchemas and reports errors to their authors.
//
// Invariant: [Accepted] is pure and returns the condition; [Reconciler] only writes the condition to the
// status. Components that use a schema validate it themselves, and ignore the parameters in an invalid schema.
package contract

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Accepted returns the condition for a schema, with its errors or a summary.
func Accepted(schema *v1alpha1.CNIPluginSchema) metav1.Condition {
	summary := fmt.Sprintf("topologies are checked against this contract of %s", schema.Spec.CNIType)
	// A schema in the cluster overrides the built-in schema for the same plugin, and stays the same when the driver is
	// upgraded. Authors who copy a built-in schema to change one line might not expect this.
	var remarks []string
	if _, builtIn := cnichain.DefaultSchemas().Lookup(schema.Spec.CNIType); builtIn {
		remarks = append(remarks, "it overrides the built-in schema of "+schema.Spec.CNIType+
			" and does not receive the corrections of later driver versions")
	}
	return conditions.Of(schema.Generation, summary, cnichain.ValidateSchema(&schema.Spec), remarks...)
}

// Reconciler returns a keeper for the condition Accepted on every CNIPluginSchema. The client reads through a cache.
func Reconciler(api client.Client) *conditions.Keeper[*v1alpha1.CNIPluginSchema] {
	return &conditions.Keeper[*v1alpha1.CNIPluginSchema]{
		Client: api, Kind: "CNIPluginSchema", Accepted: Accepted,
		New:        func() *v1alpha1.CNIPluginSchema { return &v1alpha1.CNIPluginSchema{} },
		Conditions: func(s *v1alpha1.CNIPluginSchema) *[]metav1.Condition { return &s.Status.Conditions },
	}
}
