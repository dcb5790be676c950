package cnichain_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
)

// FuzzValidate checks that validating arbitrary text does not panic, and that Validate reports at least the problems
// that a node would report.
func FuzzValidate(f *testing.F) {
	for _, c := range append(corpus.Valid(f), corpus.Invalid(f)...) {
		f.Add(string(c.Spec))
	}
	f.Fuzz(func(t *testing.T, spec string) {
		topology := &v1alpha1.NetworkTopology{}
		if json.Unmarshal([]byte(spec), &topology.Spec) != nil {
			t.Skip()
		}
		stored := cnichain.ValidateStored(topology, cnichain.DefaultSchemas())
		if all := cnichain.Validate(topology, cnichain.DefaultSchemas()); len(all) < len(stored) {
			t.Errorf("a node reports %d problems, but full validation only %d", len(stored), len(all))
		}
	})
}

// FuzzContracts checks arbitrary schemas from the cluster.
func FuzzContracts(f *testing.F) {
	for _, c := range corpus.InvalidSchemas(f) {
		f.Add(string(c.Spec), `{"x": [{"y": "{{ a.interfaces }}"}], "ipam": {"type": "mine", "x": 1e999}}`)
	}
	f.Fuzz(func(t *testing.T, spec, config string) {
		schema := v1alpha1.CNIPluginSchema{}
		if json.Unmarshal([]byte(spec), &schema.Spec) != nil || !json.Valid([]byte(config)) {
			t.Skip()
		}
		topology := &v1alpha1.NetworkTopology{}
		topology.Spec.Steps = []v1alpha1.Step{
			{Name: "a", Type: schema.Spec.CNIType, Selector: &v1alpha1.StepSelector{CEL: "true"}},
			{Name: "b", Type: schema.Spec.CNIType, DependOn: []string{"a"}},
		}
		for i := range topology.Spec.Steps {
			topology.Spec.Steps[i].Config = &runtime.RawExtension{Raw: []byte(config)}
		}
		_ = cnichain.ValidateSchema(&schema.Spec)
		_ = cnichain.Validate(topology, cnichain.DefaultSchemas().With(schema))
	})
}
