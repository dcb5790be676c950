package policy_test

import (
	"testing"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

// FuzzCheck checks that nodes accept every policy that Check accepts, that the API server accepts the attributes that
// its expressions yield, and that completing a class expression a second time does not change it.
func FuzzCheck(f *testing.F) {
	for _, c := range append(corpus.Valid(f), corpus.Invalid(f)...) {
		f.Add(c.JSON(f))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p v1alpha1.DeviceExposurePolicy
		if yaml.Unmarshal(data, &p) != nil {
			return
		}
		p.Spec.NodeSelector = nil
		problems, _ := policy.Check(&p)
		decision := policy.Resolve(facts(), []v1alpha1.DeviceExposurePolicy{p}, policy.Node{Name: "n"})
		for _, d := range decision.Devices {
			if r := d.Reasons[0]; len(problems) == 0 && (r.Outcome == policy.Invalid || r.Outcome == policy.Failed) {
				t.Errorf("%s: Check accepted the policy, but resolving it gave %v", d.Device.Name, r)
			}
			for _, p := range d.Personas {
				for name, value := range p.AdditionalAttributes {
					checkPublishable(t, string(name), value)
				}
			}
		}
		complete, err := policy.ClassExpression(p.Spec.Selector.CEL)
		if err != nil {
			return
		}
		if again, err := policy.ClassExpression(complete); err != nil || again != complete {
			t.Errorf("completing %s again changed it to %s (%v)", complete, again, err)
		}
	})
}

func checkPublishable(t *testing.T, name string, value resourceapi.DeviceAttribute) {
	t.Helper()
	types := 0
	for _, set := range []bool{value.StringValue != nil, value.IntValue != nil, value.BoolValue != nil,
		value.VersionValue != nil} {
		if set {
			types++
		}
	}
	text := ptr.Deref(value.StringValue, ptr.Deref(value.VersionValue, ""))
	if types != 1 || len(text) > policy.MaxString || !utf8.ValidString(text) {
		t.Errorf("attribute %s is invalid: %+v", name, value)
	}
}
