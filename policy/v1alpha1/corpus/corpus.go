// Package corpus holds DeviceExposurePolicies for tests: valid ones, and for every rule one that breaks it, with who
// refuses it and what is said to its author.
//
// The rule of this package: it is data. Tests of the definition, of the validation, of the nodes and of the webhook all
// run the same policies, so that a rule that one of them forgets is seen.
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
	// Name says what is special about the policy.
	Name string `json:"name"`
	// Spec is the specification as its author writes it.
	Spec json.RawMessage `json:"spec"`
	// Definition is a part of what the definition of the resource says of an invalid policy. It is empty where the
	// schema and the CEL rules in it can't express the rule: these policies are refused by Go only.
	Definition string `json:"definition,omitempty"`
	// Field, Reason and Fix are the field of the only error of Go, and parts of its message.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Undecodable says that Go can't even read the policy. No API server with the definition stores it.
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
