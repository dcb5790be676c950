// Package corpus holds DeviceExposurePolicies for tests, valid ones and for every rule an invalid one with the
// component that rejects it and the expected message.
//
// The rule of this package: it is data only. The tests of the CRD, the validation, the nodes and the webhook run the
// same policies, so that a component that lacks a rule fails a test.
package corpus

import (
	"embed"
	"encoding/json"
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus/cases"
)

//go:embed valid/*.yaml invalid/*.yaml
var files embed.FS //nolint:gochecknoglobals // that is how files are embedded

// Name is the name of every policy of the corpus.
const Name = "corpus"

// Case is one policy.
type Case struct {
	// Name describes the policy.
	Name string `json:"name"`
	// Spec is the specification as its author writes it.
	Spec json.RawMessage `json:"spec"`
	// Definition is a part of the error of the CRD for an invalid policy. It is empty if the schema and its CEL rules
	// cannot express the rule, and only Go code rejects the policy.
	Definition string `json:"definition,omitempty"`
	// Field, Reason and Fix are the field of the only error of Go, and parts of its message.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Undecodable is true if Go cannot decode the policy. No API server with the CRD stores it.
	Undecodable bool `json:"undecodable,omitempty"`
	// Stored is what nodes make of an invalid policy that is stored all the same.
	Stored Stored `json:"stored,omitempty"`
	// Remarks are parts of the remarks on a valid policy, in order.
	Remarks []string `json:"remarks,omitempty"`
}

// Stored is what nodes make of an invalid policy.
type Stored string

const (
	// ExposesNothing is what becomes of most expose policies.
	ExposesNothing Stored = ""
	// HidesEverything is what becomes of an exclude policy whose expression says nothing.
	HidesEverything Stored = "hides everything"
	// HidesMatches is what becomes of an exclude policy that is invalid, but for its expression.
	HidesMatches Stored = "hides matches"
	// ExposesMatches is what becomes of a policy that is refused when it is written, and only then.
	ExposesMatches Stored = "exposes matches"
)

// Valid returns the valid policies.
func Valid(t testing.TB) []Case { return read(t, "valid") }

// Invalid returns the invalid policies, each of which breaks one rule.
func Invalid(t testing.TB) []Case { return read(t, "invalid") }

func read(t testing.TB, folder string) []Case {
	t.Helper()
	return cases.Read(t, files, folder+"/*.yaml", func(c Case) string { return c.Name })
}

// JSON returns the policy as a client sends it.
func (c Case) JSON(t testing.TB) []byte {
	t.Helper()
	return cases.JSON(t, v1alpha1.GroupVersion().WithKind("DeviceExposurePolicy"), Name, c.Spec)
}

// Object returns the policy as the API server holds it before it knows its type.
func (c Case) Object(t testing.TB) map[string]any {
	t.Helper()
	return cases.Object(t, c.JSON(t))
}

// Policy returns the policy as Go reads it.
func (c Case) Policy(t testing.TB) (*v1alpha1.DeviceExposurePolicy, error) {
	t.Helper()
	p := &v1alpha1.DeviceExposurePolicy{}
	if err := yaml.UnmarshalStrict(c.JSON(t), p); err != nil {
		return nil, fmt.Errorf("cannot read the policy: %w", err)
	}
	return p, nil
}
