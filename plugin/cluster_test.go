package plugin

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The status of a policy has what nodes publish: if it had them compute that again, a change of one node would be work
// for all of them.
func TestStatusOfPoliciesIsNoChange(t *testing.T) {
	type policy = policyapi.DeviceExposurePolicy
	ports := func(amount string) map[string]policyapi.Capacity {
		return map[string]policyapi.Capacity{"ports": {Value: policyapi.Amount{Quantity: resource.MustParse(amount)}}}
	}
	newPolicy := func(version string, change func(*policy)) *policy {
		p := &policy{}
		p.UID, p.ResourceVersion = "a", version
		p.Spec.Exposure = &policyapi.Exposure{Capacity: ports("4")}
		change(p)
		return p
	}
	before := newPolicy("1", func(*policy) {})
	for name, test := range map[string]struct {
		version string
		change  func(*policy)
		want    bool
	}{
		"status":     {"2", func(p *policy) { p.Status.Devices = ptr.To[int32](3) }, false},
		"labels":     {"2", func(p *policy) { p.Labels = map[string]string{"a": "b"} }, false},
		"priority":   {"2", func(p *policy) { p.Spec.Priority = 7 }, true},
		"amount":     {"2", func(p *policy) { p.Spec.Exposure.Capacity = ports("5") }, true},
		"made again": {"2", func(p *policy) { p.UID = "b" }, true},
		"reminder":   {"1", func(*policy) {}, true},
	} {
		if got := changesOffers(before, newPolicy(test.version, test.change)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
