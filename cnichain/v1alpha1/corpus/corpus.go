// Package corpus contains objects for tests: valid NetworkTopologies, an invalid NetworkTopology for each rule (with
// the component that rejects it and the expected message), and invalid CNIPluginSchemas.
//
// Invariant: it contains only data. The tests for the CRDs, the validation, the nodes and the webhook
// use the same objects, so that a test fails if a component does not enforce a rule.
package corpus

import (
	"embed"
	"encoding/json"
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus/cases"
)

//go:embed valid/*.yaml invalid/*.yaml schemas/*.yaml
var files embed.FS //nolint:gochecknoglobals // that is how files are embedded

// Name is the name of every object in the corpus.
const Name = "corpus"

// Case is one object.
type Case struct {
	// Name describes the object.
	Name string `json:"name"`
	// Spec is the specification as a user would write it.
	Spec json.RawMessage `json:"spec"`
	// Definition is part of the CRD's error for an invalid object. It is empty if the CRD's schema and CEL rules cannot
	// express the rule, so that only Go code rejects the object.
	Definition string `json:"definition,omitempty"`
	// Field is the field of the only error from the Go code, and Reason is part of that error's message.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Remarks contains parts of the expected remarks on a valid topology, in order.
	Remarks []string `json:"remarks,omitempty"`
	// Written is true if the topology is rejected only when it is written. Nodes accept it once it is stored.
	Written bool `json:"written,omitempty"`
	// Undecodable is true if Go cannot decode the object. An API server with the CRD never stores it.
	Undecodable bool `json:"undecodable,omitempty"`

	kind string
}

// Valid returns the valid topologies.
func Valid(t testing.TB) []Case { return read(t, "valid", "NetworkTopology") }

// Invalid returns the invalid topologies, each of which breaks one rule.
func Invalid(t testing.TB) []Case { return read(t, "invalid", "NetworkTopology") }

// InvalidSchemas returns invalid CNIPluginSchemas, each of which breaks one rule.
func InvalidSchemas(t testing.TB) []Case { return read(t, "schemas", "CNIPluginSchema") }

func read(t testing.TB, folder, kind string) []Case {
	t.Helper()
	all := cases.Read(t, files, folder+"/*.yaml", func(c Case) string { return c.Name })
	for i := range all {
		all[i].kind = kind
	}
	return all
}

// JSON returns the object as a client would send it.
func (c Case) JSON(t testing.TB) []byte {
	t.Helper()
	return cases.JSON(t, v1alpha1.GroupVersion().WithKind(c.kind), Name, c.Spec)
}

// Object returns the object as unstructured data, which is what the API server validates.
func (c Case) Object(t testing.TB) map[string]any {
	t.Helper()
	return cases.Object(t, c.JSON(t))
}

// Topology returns the object decoded as a NetworkTopology.
func (c Case) Topology(t testing.TB) (*v1alpha1.NetworkTopology, error) {
	t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	if err := yaml.UnmarshalStrict(c.JSON(t), topology); err != nil {
		return nil, fmt.Errorf("cannot read the topology: %w", err)
	}
	return topology, nil
}

// Schema returns the object decoded as a CNIPluginSchema.
func (c Case) Schema(t testing.TB) (*v1alpha1.CNIPluginSchema, error) {
	t.Helper()
	schema := &v1alpha1.CNIPluginSchema{}
	if err := yaml.UnmarshalStrict(c.JSON(t), schema); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	return schema, nil
}
