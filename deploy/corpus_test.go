package deploy_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	topologycorpus "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

const (
	policyCRD   = "crds/networking.dra.io_deviceexposurepolicies.yaml"
	topologyCRD = "crds/networking.dra.io_networktopologies.yaml"
	schemaCRD   = "crds/networking.dra.io_cnipluginschemas.yaml"
)

// TestDefinitionTakesWhatGoTakes checks that no CRD rule is stricter than Go's validation.
func TestDefinitionTakesWhatGoTakes(t *testing.T) {
	policies := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, policyCRD))
	for _, c := range corpus.Valid(t) {
		for _, problem := range policies.admit(t, c.Object(t)) {
			t.Errorf("%s: %v", c.Name, problem)
		}
	}
}

// TestDefinitionRefusesWhatItCan checks that the CRD rejects every invalid policy with the message in the corpus. If
// the corpus declares that the CRD cannot do so, Go must reject the policy. Go's validation of the other policies is
// covered by the tests for Go's rules.
func TestDefinitionRefusesWhatItCan(t *testing.T) {
	policies := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, policyCRD))
	onlyGo := 0
	for _, c := range corpus.Invalid(t) {
		t.Run(c.Name, func(t *testing.T) {
			var said []string
			for _, problem := range policies.admit(t, c.Object(t)) {
				said = append(said, problem.Error())
			}
			switch text := strings.Join(said, "\n"); {
			case c.Definition == "" && text != "":
				t.Errorf("the CRD rejects this object, so the corpus must contain the message:\n%s", text)
			case c.Definition == "":
				onlyGo++
				if p, err := c.Policy(t); err != nil {
					t.Errorf("the CRD accepts this object, but Go cannot decode it: %v", err)
				} else if problems, _ := policy.Check(p); len(problems) == 0 {
					t.Error("neither the CRD nor policy.Check rejects this object")
				}
			case !strings.Contains(text, c.Definition):
				t.Errorf("the CRD reports %q, want ... %s ...", text, c.Definition)
			}
		})
	}
	t.Logf("only Go rejects %d of %d", onlyGo, len(corpus.Invalid(t)))
}

// TestDefinitionTakesTopologiesThatGoTakes is like TestDefinitionTakesWhatGoTakes, but for topologies and the built-in
// schemas.
func TestDefinitionTakesTopologiesThatGoTakes(t *testing.T) {
	topologies := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, topologyCRD))
	for _, c := range topologycorpus.Valid(t) {
		for _, problem := range topologies.admit(t, c.Object(t)) {
			t.Errorf("%s: %v", c.Name, problem)
		}
	}
	schemas := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, schemaCRD))
	for cniType, spec := range cnichain.DefaultSchemas().All() {
		for _, problem := range schemas.admit(t, untyped(t, &topologyapi.CNIPluginSchema{Spec: spec})) {
			t.Errorf("%s: %v", cniType, problem)
		}
	}
}

// TestDefinitionRefusesTopologiesItCan only covers the CRDs. The tests for Go's rules check that Go rejects all invalid
// topologies.
func TestDefinitionRefusesTopologiesItCan(t *testing.T) {
	for file, cases := range map[string][]topologycorpus.Case{topologyCRD: topologycorpus.Invalid(t),
		schemaCRD: topologycorpus.InvalidSchemas(t)} {
		definition := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, file))
		onlyGo := 0
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				var said []string
				for _, problem := range definition.admit(t, c.Object(t)) {
					said = append(said, problem.Error())
				}
				switch text := strings.Join(said, "\n"); {
				case c.Definition == "" && text != "":
					t.Errorf("the CRD rejects this object, so the corpus must contain the message:\n%s", text)
				case c.Definition == "":
					onlyGo++
				case !strings.Contains(text, c.Definition):
					t.Errorf("the CRD reports %q, want ... %s ...", text, c.Definition)
				}
			})
		}
		t.Logf("%s: only Go rejects %d of %d", file, onlyGo, len(cases))
	}
}

// untyped returns an object in the unstructured form that the API server uses for custom resources.
func untyped(t *testing.T, object any) map[string]any {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, data)
}
