package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

// FuzzValidate checks that every policy that can be decoded can also be validated, that every error contains a field
// and a reason, and that accepted policies are still accepted after encoding and decoding.
func FuzzValidate(f *testing.F) {
	for _, c := range append(corpus.Valid(f), corpus.Invalid(f)...) {
		f.Add(c.JSON(f))
	}
	f.Add(
		[]byte(
			`spec: {selector: {cel: "true"}, exposure: {capacity: {c: {value: 1e1000000000}}, ` +
				`supportedCNIPlugins: [{name: a}]}}`,
		),
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var p v1alpha1.DeviceExposurePolicy
		if yaml.Unmarshal(data, &p) != nil {
			return
		}
		errs := v1alpha1.Validate(&p)
		for _, err := range errs {
			if err.Field == "" || err.ErrorBody() == "" {
				t.Errorf("error lacks the field or the reason: %v", err)
			}
		}
		if len(errs) > 0 {
			return
		}
		v1alpha1.Remarks(&p)
		written, err := yaml.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		var again v1alpha1.DeviceExposurePolicy
		if err := yaml.UnmarshalStrict(written, &again); err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if errs := v1alpha1.Validate(&again); len(errs) > 0 {
			t.Errorf("the policy is rejected after a round trip through YAML: %v\n%s", errs, written)
		}
		if diff := cmp.Diff(p.Spec.Exposure, again.Spec.Exposure, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the policy changed in a round trip through YAML (-before +after):\n%s", diff)
		}
	})
}
