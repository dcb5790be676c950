// Package corpus contains DeviceExposurePolicies for tests: valid policies and, for every rule, an invalid policy with
// the component that rejects it and the expected message.
//
// Invariant: it contains only data. The tests of the CRD, the validation, the nodes and the webhook use
// the same policies, so that a test fails if a component does not implement a rule.
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

// Name is the name of every policy in the corpus.
const Name = "corpus"

// Case is a policy with the expected results.
type Case struct {
	// Name describes the policy.
	Name string `json:"name"`
	// Spec is the policy's specification as its author wrote it.
	Spec json.RawMessage `json:"spec"`
	// Definition is part of the error message from the CRD for an invalid policy. It is empty if the CRD's schema and
	// CEL rules cannot express the rule, so that only Go code rejects the policy.
	Definition string `json:"definition,omitempty"`
	// Field is the field in the only error from the Go code; Reason and Fix are parts of its message.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Undecodable is true if Go code cannot decode the policy. An API server with the CRD never stores such a policy.
	Undecodable bool `json:"undecodable,omitempty"`
	// Stored is the effect of an invalid policy on nodes if it is stored anyway.
	Stored Stored `json:"stored,omitempty"`
	// Remarks contains parts of the remarks expected for a valid policy, in order.
	Remarks []string `json:"remarks,omitempty"`
}

// Stored is the effect of a stored invalid policy on nodes.
type Stored string

const (
	// ExposesNothing is the effect of most invalid expose policies.
	ExposesNothing Stored = ""
	// HidesEverything is the effect of an exclude policy whose expression cannot be evaluated.
	HidesEverything Stored = "hides everything"
	// HidesMatches is the effect of an invalid exclude policy with a valid expression.
	HidesMatches Stored = "hides matches"
	// ExposesMatches is the effect of a policy that is only rejected on create or update.
	ExposesMatches Stored = "exposes matches"
)

// Valid returns the valid policies.
func Valid(t testing.TB) []Case { return read(t, "valid") }

// Invalid returns the invalid policies. Each of them violates exactly one rule.
func Invalid(t testing.TB) []Case { return read(t, "invalid") }

func read(t testing.TB, folder string) []Case {
	t.Helper()
	return cases.Read(t, files, folder+"/*.yaml", func(c Case) string { return c.Name })
}

// JSON returns the policy as a client would send it.
func (c Case) JSON(t testing.TB) []byte {
	t.Helper()
	return cases.JSON(t, v1alpha1.GroupVersion().WithKind("DeviceExposurePolicy"), Name, c.Spec)
}

// Object returns the policy as unstructured data, which is the form that the API server validates.
func (c Case) Object(t testing.TB) map[string]any {
	t.Helper()
	return cases.Object(t, c.JSON(t))
}

// Policy returns the decoded policy.
func (c Case) Policy(t testing.TB) (*v1alpha1.DeviceExposurePolicy, error) {
	t.Helper()
	p := &v1alpha1.DeviceExposurePolicy{}
	if err := yaml.UnmarshalStrict(c.JSON(t), p); err != nil {
		return nil, fmt.Errorf("cannot read the policy: %w", err)
	}
	return p, nil
}
