package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

func TestValidPolicies(t *testing.T) {
	for _, c := range corpus.Valid(t) {
		p, err := c.Policy(t)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		before := p.DeepCopy()
		if errs := v1alpha1.Validate(p); len(errs) > 0 {
			t.Errorf("%s: %v", c.Name, errs)
		}
		if diff := cmp.Diff(before, p); diff != "" {
			t.Errorf("%s: Validate changed the policy (-before +after):\n%s", c.Name, diff)
		}
	}
}

// TestInvalidPolicies validates policies that each violate one rule, and expects exactly one error with the field, the
// reason and the fix. It skips policies that only the CEL compiler rejects.
func TestInvalidPolicies(t *testing.T) {
	found := 0
	for _, c := range corpus.Invalid(t) {
		t.Run(c.Name, func(t *testing.T) {
			p, err := c.Policy(t)
			switch {
			case c.Undecodable && (err == nil || !strings.Contains(err.Error(), c.Reason)):
				t.Fatalf("decoding the policy: got error %v, want ... %s ...", err, c.Reason)
			case c.Undecodable:
				return
			case err != nil:
				t.Fatal(err)
			}
			errs := v1alpha1.Validate(p)
			if len(errs) == 0 && strings.HasSuffix(c.Field, ".cel") && c.Definition == "" {
				return // tests in package policy, which has the compiler, cover the whole corpus
			}
			found++
			if len(errs) != 1 || errs[0].Field != c.Field || !strings.Contains(errs[0].Error(), c.Reason) ||
				!strings.Contains(errs[0].Error(), c.Fix) {
				t.Errorf("got %v, want %s: ... %s ... %s ...", errs, c.Field, c.Reason, c.Fix)
			}
		})
	}
	if found < 60 {
		t.Errorf("only %d policies were rejected, want at least 60", found)
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	var p v1alpha1.DeviceExposurePolicy
	spec := `{priority: -1, exposure: {deviceNameSuffix: x, capacity: {a: {value: -1}, b: {value: -1}}}}`
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, err := range v1alpha1.Validate(&p) {
		got = append(got, err.Field)
	}
	want := []string{"spec.priority", "spec.selector.cel", "spec.exposure.deviceNameSuffix",
		"spec.exposure.supportedCNIPlugins",
		"spec.exposure.capacity[a].value", "spec.exposure.capacity[b].value"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong fields (-want +got):\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	got := []string{v1alpha1.CNIAttribute("ovn-k8s.cni-overlay"), v1alpha1.QualifiedName("macvlans"),
		v1alpha1.QualifiedName("a.b/c")}
	if diff := cmp.Diff([]string{"ovn_k8s_cni_overlay", "dra.networking/macvlans", "a.b/c"}, got); diff != "" {
		t.Error(diff)
	}
}
