package deploy_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

const policyCRD = "crds/networking.dra.io_deviceexposurepolicies.yaml"

// TestDefinitionTakesWhatGoTakes: no rule of the definition is stricter than those of Go.
func TestDefinitionTakesWhatGoTakes(t *testing.T) {
	policies := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, policyCRD))
	for _, c := range corpus.Valid(t) {
		for _, problem := range policies.admit(t, c.Object(t)) {
			t.Errorf("%s: %v", c.Name, problem)
		}
	}
}

// TestDefinitionRefusesWhatItCan: every invalid policy is refused by the definition, with the words of the corpus, or by Go
// where the corpus says that the definition can't. That it is refused by Go also in the first case is tested with Go's rules.
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
				t.Errorf("the definition can express this rule, so the corpus must say how:\n%s", text)
			case c.Definition == "":
				onlyGo++
				if p, err := c.Policy(t); err != nil {
					t.Errorf("nobody refuses it in words, and Go fails to read it: %v", err)
				} else if problems, _ := policy.Check(p); len(problems) == 0 {
					t.Error("nobody refuses it")
				}
			case !strings.Contains(text, c.Definition):
				t.Errorf("the definition says %q, want ... %s ...", text, c.Definition)
			}
		})
	}
	t.Logf("only Go refuses %d of %d", onlyGo, len(corpus.Invalid(t)))
}
