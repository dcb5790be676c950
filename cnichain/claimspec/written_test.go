package claimspec_test

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// served returns the topologies that the invalid claims refer to, with the generated classes.
func served(t *testing.T) []*v1alpha1.NetworkTopology {
	var topologies []*v1alpha1.NetworkTopology
	for _, topology := range claimspectest.TopologiesByName(t) {
		for _, step := range topology.Spec.Steps {
			topology.Status.DeviceClasses = append(topology.Status.DeviceClasses,
				v1alpha1.ClassName(topology.Name, step.Name))
		}
		topologies = append(topologies, topology)
	}
	slices.SortFunc(topologies, func(a, b *v1alpha1.NetworkTopology) int { return strings.Compare(a.Name, b.Name) })
	return topologies
}

// A claim that the driver would reject is rejected with the same message when it is created. No other claims are
// rejected.
func TestBadClaimsAreRefusedWhenWritten(t *testing.T) {
	for _, bad := range claimspectest.Cases(t) {
		t.Run(bad.Name, func(t *testing.T) {
			claims, _ := bad.Allocated(t)
			for _, claim := range claims {
				claim.Status.Allocation = nil
				got := claimspec.CheckWritten(claim, served(t), field.NewPath("spec"))
				// The claim has no parameters, so it is not sent to the webhook.
				if bad.Name != "all-devices" && bad.WhenWritten != (len(got) > 0) {
					t.Errorf("unexpected problems: %v", got)
				}
				for _, want := range bad.Wants {
					if bad.WhenWritten && !strings.Contains(got.ToAggregate().Error(), want) {
						t.Errorf("problems = %v, want %q", got, want)
					}
				}
				if again := claimspec.CheckWritten(claim, nil, field.NewPath("spec")); len(again) > 0 {
					t.Errorf("unexpected problems in the claim without generated classes: %v", again)
				}
			}
		})
	}
}

func TestClaimsThatAreWritten(t *testing.T) {
	requests := func(more string, names ...string) string {
		var texts []string
		for _, name := range names {
			texts = append(texts, `{name: `+name+`, exactly: {deviceClassName: bad-two-`+name+more+`}}`)
		}
		return `requests: [` + strings.Join(texts, ", ") + `]`
	}
	mac := func(requests, value string) string {
		return `, config: [{requests: [` + requests + `], opaque: {driver: dra.networking, parameters: {mac: "` + value +
			`"}}}]`
	}
	const other = `requests: [{name: g, exactly: {deviceClassName: gpu}}]`
	const missing, valid = "NetworkTopology bad-two: spec.steps[1]: ", "02:00:00:00:00:01"
	for name, test := range map[string]struct {
		devices string
		wants   []string
	}{
		"whole":           {devices: requests("", "left", "right")},
		"several of each": {devices: requests(", count: 3", "left", "right")},
		"half":            {requests("", "left"), []string{missing}},
		"mistakes with two topologies": {
			`requests: [{name: l, exactly: {deviceClassName: bad-two-left}}, ` +
				`{name: u, exactly: {deviceClassName: bad-one-uplink}}]` + mac("u", valid),
			[]string{`NetworkTopology bad-one: spec.steps[0].claimParameters: Forbidden: claim apps/web- sets mac`,
				missing}},
		"for who watches": {devices: requests(", adminAccess: true", "left")},
		"more than any":   {requests(", count: 9223372036854775807", "left"), []string{missing}},
		"parameter of one": {requests("", "left", "right") + mac("left", valid),
			[]string{`sets mac of step "left", which the topology does not allow`}},
		"parameter of several devices": {requests(", count: 2", "left", "right") + mac("left", valid),
			[]string{"request left has several devices and configuration"}},
		"malformed": {requests("", "left", "right") + mac("left, right", "no"),
			[]string{"request left: mac", "request right: mac"}},
		"the rest of another class": {
			devices: strings.Replace(requests("", "left", "right"), "bad-two-right", "theirs", 1)},
		"the rest of another class, and a parameter": {
			strings.Replace(requests("", "left", "right"), "bad-two-right", "theirs", 1) + mac("left", valid),
			[]string{`sets mac of step "left", which the topology does not allow`}},
		"another driver":              {devices: other + `, config: [{opaque: {driver: gpu, parameters: {x: 1}}}]`},
		"malformed for another class": {devices: other + mac("g", "no")},
		"alternatives": {devices: `requests: [{name: r, firstAvailable: [{name: a, deviceClassName: bad-two-left}, ` +
			`{name: b, deviceClassName: gpu}]}, {name: l, exactly: {deviceClassName: bad-two-left}}]`},
		"every device": {`requests: [{name: r, exactly: {deviceClassName: bad-one-uplink, allocationMode: All}}]`,
			[]string{"allocationMode is All"}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{}
			claim.Namespace, claim.GenerateName = "apps", "web-"
			if err := yaml.UnmarshalStrict([]byte("{devices: {"+test.devices+"}}"), &claim.Spec); err != nil {
				t.Fatal(err)
			}
			got := claimspec.CheckWritten(claim, served(t), field.NewPath("spec"))
			if len(got) != len(test.wants) {
				t.Fatalf("unexpected problems: %v", got)
			}
			for i, want := range test.wants {
				if got[i].Field != "spec.devices" || !strings.Contains(got[i].Error(), want) {
					t.Errorf("problem %d = %v, want %q", i, got[i], want)
				}
			}
		})
	}
}
