package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// validate returns the fields that are wrong in a spec, each with its reason.
func validate(t *testing.T, spec string) []string {
	t.Helper()
	var p v1alpha1.DeviceExposurePolicy
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	var errs []string
	for _, err := range v1alpha1.Validate(&p) {
		errs = append(errs, err.Error())
	}
	return errs
}

func TestValidPolicies(t *testing.T) {
	for name, spec := range map[string]string{
		"exclude": `
selector: {cel: 'true'}
action: exclude`,
		"everything": `
nodeSelector: {matchLabels: {role: worker}}
priority: 1000
selector: {cel: 'true'}
action: expose
exposure:
  deviceNameSuffix: "-macvlan"
  exclusionGroup: rx-handler
  allowMultipleAllocations: true
  capacity:
    macvlans: {value: "64", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}
    bandwidth: {value: "100", requestPolicy: {default: "10", validValues: ["10", "20"]}}
    plain: {value: "10"}
  supportedCNIPlugins:
  - {name: macvlan, consumePerAllocation: {macvlans: 1, plain: "2"}}
  - {name: ipvlan, consumePerAllocation: {plain: 2}}
  - {name: host-device, exclusive: true}
  additionalAttributes: {physicalNetworkName: localnet1, example.com/rack: 7, tested: true}`,
		"exclusive with bandwidth policy": `
selector: {cel: 'true'}
exposure:
  capacity: {bandwidth: {value: "100", requestPolicy: {default: "10"}}, queues: {value: "8"}}
  supportedCNIPlugins: [{name: ovn-k8s-cni-overlay, exclusive: true}]`,
	} {
		if errs := validate(t, spec); len(errs) > 0 {
			t.Errorf("%s: %q", name, errs)
		}
	}
}

// exposing is a spec with the exposure; shared and exclusive begin exposures.
func exposing(exposure string) string { return "selector: {cel: 'true'}\nexposure: " + exposure }

func TestInvalidPolicies(t *testing.T) {
	shared := func(rest string) string {
		return exposing(`{allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan}], ` + rest + `}`)
	}
	exclusive := func(rest string) string {
		return exposing(`{supportedCNIPlugins: [{name: sriov, exclusive: true}], ` + rest + `}`)
	}
	request := func(policy string) string {
		return shared(`capacity: {c: {value: "10", requestPolicy: ` + policy + `}}`)
	}
	for name, test := range map[string]struct {
		spec string
		want []string // the field, and a part of the reason
	}{
		"no selector":               {`action: exclude`, []string{"spec.selector.cel|an expression"}},
		"priority":                  {"selector: {cel: 'true'}\naction: exclude\npriority: 1001", []string{"spec.priority|between 0 and 1000"}},
		"action":                    {"selector: {cel: 'true'}\naction: hide", []string{"spec.action|Unsupported"}},
		"node selector":             {"selector: {cel: 'true'}\naction: exclude\nnodeSelector: {matchLabels: {'a b': c}}", []string{"spec.nodeSelector.matchLabels|name part"}},
		"exposure with exclude":     {"selector: {cel: 'true'}\naction: exclude\nexposure: {}", []string{"spec.exposure|remove exposure"}},
		"no exposure":               {`selector: {cel: 'true'}`, []string{"spec.exposure|needs exposure"}},
		"no plugins":                {exposing(`{}`), []string{"spec.exposure.supportedCNIPlugins|at least one"}},
		"suffix":                    {exclusive(`deviceNameSuffix: Mac`), []string{"spec.exposure.deviceNameSuffix|must be empty or"}},
		"group":                     {exclusive(`exclusionGroup: a_b`), []string{"spec.exposure.exclusionGroup|lower case"}},
		"path as plugin":            {exposing(`{supportedCNIPlugins: [{name: ../bin/x}]}`), []string{"spec.exposure.supportedCNIPlugins[0].name|bare file name"}},
		"plugin too long":           {exposing(`{supportedCNIPlugins: [{name: a-plugin-with-a-name-of-40-characters-abc}]}`), []string{"spec.exposure.supportedCNIPlugins[0].name|rename the binary"}},
		"plugins with one name":     {exposing(`{supportedCNIPlugins: [{name: a-b}, {name: a_b}, {name: a_b}]}`), []string{"spec.exposure.supportedCNIPlugins[1].name|cannot be told", "spec.exposure.supportedCNIPlugins[2].name|Duplicate"}},
		"all exclusive but shared":  {exposing(`{allowMultipleAllocations: true, supportedCNIPlugins: [{name: sriov, exclusive: true}]}`), []string{"spec.exposure.allowMultipleAllocations|every plugin is exclusive"}},
		"mixed without capacity":    {exposing(`{allowMultipleAllocations: true, supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: macvlan}]}`), []string{"spec.exposure.capacity|need a capacity"}},
		"mixed but not shared":      {exposing(`{supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: macvlan}]}`), []string{"spec.exposure.allowMultipleAllocations|set both"}},
		"unknown counter":           {exposing(`{allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {x: 1}}]}`), []string{`spec.exposure.supportedCNIPlugins[0].consumePerAllocation[x]|no counter "x"`}},
		"bad amount":                {exposing(`{allowMultipleAllocations: true, capacity: {x: {value: "1"}}, supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {x: many}}]}`), []string{`spec.exposure.supportedCNIPlugins[0].consumePerAllocation[x]|quantity`}},
		"two truths":                {exposing(`{allowMultipleAllocations: true, capacity: {x: {value: "9", requestPolicy: {default: "2"}}}, supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {x: 1}}]}`), []string{`spec.exposure.supportedCNIPlugins[0].consumePerAllocation[x]|write 2 in both`}},
		"two plugins, two truths":   {exposing(`{allowMultipleAllocations: true, capacity: {x: {value: "9"}}, supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {x: 1}}, {name: ipvlan, consumePerAllocation: {x: 2}}]}`), []string{`spec.exposure.supportedCNIPlugins[1].consumePerAllocation[x]|write 1 for both`}},
		"consumes more than all":    {exposing(`{allowMultipleAllocations: true, capacity: {x: {value: "9"}}, supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {x: 10}}]}`), []string{`spec.exposure.supportedCNIPlugins[0].consumePerAllocation[x]|greater than the counter's value`}},
		"counter name":              {shared(`capacity: {a-b: {value: "1"}}`), []string{"spec.exposure.capacity[a-b]|letters, digits"}},
		"zero capacity":             {shared(`capacity: {c: {value: "0"}}`), []string{"spec.exposure.capacity[c].value|greater than zero"}},
		"request on exclusive":      {exclusive(`capacity: {c: {value: "1", requestPolicy: {default: "1"}}}`), []string{"spec.exposure.capacity[c].requestPolicy|remove requestPolicy"}},
		"range and values":          {request(`{default: "1", validRange: {min: "1"}, validValues: ["1"]}`), []string{"spec.exposure.capacity[c].requestPolicy|keep one"}},
		"range without default":     {request(`{validRange: {min: "1"}}`), []string{"spec.exposure.capacity[c].requestPolicy.default|needs a default"}},
		"range without min":         {request(`{default: "1", validRange: {max: "1"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.min|least amount"}},
		"default below min":         {request(`{default: "1", validRange: {min: "2"}}`), []string{"spec.exposure.capacity[c].requestPolicy.default|less than validRange.min"}},
		"default above max":         {request(`{default: "5", validRange: {min: "2", max: "4"}}`), []string{"spec.exposure.capacity[c].requestPolicy.default|greater than validRange.max"}},
		"default off step":          {request(`{default: "2", validRange: {min: "1", step: "3"}}`), []string{"spec.exposure.capacity[c].requestPolicy.default|steps of 3"}},
		"max off step":              {request(`{default: "1", validRange: {min: "1", max: "5", step: "3"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.max|steps of 3"}},
		"step zero":                 {request(`{default: "1", validRange: {min: "1", step: "0"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.step|greater than zero"}},
		"step too great":            {request(`{default: "1", validRange: {min: "1", step: "10"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.step|more than the counter's value"}},
		"fraction with step":        {request(`{default: "1500m", validRange: {min: "1", step: "1"}}`), []string{"spec.exposure.capacity[c].requestPolicy.default|whole number"}},
		"max above value":           {request(`{default: "1", validRange: {min: "1", max: "11"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.max|greater than the counter's value"}},
		"min above max":             {request(`{default: "3", validRange: {min: "3", max: "2"}}`), []string{"spec.exposure.capacity[c].requestPolicy.validRange.max|less than min"}},
		"default not in values":     {request(`{default: "3", validValues: ["1", "2"]}`), []string{"spec.exposure.capacity[c].requestPolicy.default|one of validValues"}},
		"values unsorted":           {request(`{default: "1", validValues: ["2", "1"]}`), []string{"spec.exposure.capacity[c].requestPolicy.validValues[1]|sort validValues"}},
		"default above value":       {request(`{default: "11"}`), []string{"spec.exposure.capacity[c].requestPolicy.default|no claim could be satisfied"}},
		"bandwidth is whole":        {exclusive(`capacity: {bandwidth: {value: "10", requestPolicy: {default: "500m", validValues: ["0", "500m", "2"]}}}`), []string{"spec.exposure.capacity[bandwidth].requestPolicy.default|whole number", "spec.exposure.capacity[bandwidth].requestPolicy.validValues[0]|Mbit/s", "spec.exposure.capacity[bandwidth].requestPolicy.validValues[1]|whole number"}},
		"bandwidth value is whole":  {exclusive(`capacity: {bandwidth: {value: "2500m"}}`), []string{"spec.exposure.capacity[bandwidth].value|whole number"}},
		"Kubernetes' attributes":    {exclusive(`additionalAttributes: {resource.kubernetes.io/x: a, k8s.io/y: b}`), []string{"spec.exposure.additionalAttributes[k8s.io/y]|belongs to Kubernetes", "spec.exposure.additionalAttributes[resource.kubernetes.io/x]|belongs to Kubernetes"}},
		"CNI attributes":            {exclusive(`additionalAttributes: {cni.dra.networking/x: true}`), []string{"spec.exposure.additionalAttributes[cni.dra.networking/x]|supportedCNIPlugins"}},
		"discovered attributes":     {exclusive(`additionalAttributes: {ifName: x, dra.networking/mtu: 1}`), []string{"spec.exposure.additionalAttributes[dra.networking/mtu]|discovers", "spec.exposure.additionalAttributes[ifName]|discovers"}},
		"attribute names":           {exclusive(`additionalAttributes: {a/b/c: x, a-b: x, _/x: y}`), []string{"spec.exposure.additionalAttributes[_/x]|DNS name", "spec.exposure.additionalAttributes[a-b]|letters, digits", "spec.exposure.additionalAttributes[a/b/c]|letters, digits"}},
		"long string":               {exclusive(`additionalAttributes: {x: ` + strings.Repeat("é", 33) + `}`), []string{"spec.exposure.additionalAttributes[x]|64"}},
		"no value":                  {exclusive(`additionalAttributes: {x: null}`), []string{"spec.exposure.additionalAttributes[x]|a string, an integer or a boolean"}},
		"one attribute, two names":  {exclusive(`additionalAttributes: {x: 1, dra.networking/x: 2}`), []string{"spec.exposure.additionalAttributes[x]|Duplicate"}},
		"every problem is reported": {"priority: -1\nexposure: {deviceNameSuffix: x}", []string{"spec.priority|between", "spec.selector.cel|an expression", "spec.exposure.deviceNameSuffix|must be", "spec.exposure.supportedCNIPlugins|at least one"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := validate(t, test.spec)
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				field, reason, _ := strings.Cut(want, "|")
				if !strings.HasPrefix(got[i], field+": ") || !strings.Contains(got[i], reason) {
					t.Errorf("got %q, want %s: ... %s ...", got[i], field, reason)
				}
			}
		})
	}
}

func TestBandwidthRemark(t *testing.T) {
	for request, want := range map[string]string{
		`{default: "10"}`: "",
		`{default: "10", validValues: ["10", "20"]}`: "",
		`{default: "10", validRange: {min: "5", step: "5"}}`: "capacity[bandwidth].requestPolicy.validRange can't be kept on this Kubernetes, where every virtual function has the default, 10: " +
			"a claim that asks for more, up to 100, gets none, and one that asks for less, down to 5, takes 10 all the same; list the amounts in validValues to offer each of them",
	} {
		var e v1alpha1.Exposure
		spec := `{supportedCNIPlugins: [{name: sriov, exclusive: true}], capacity: {bandwidth: {value: "100", requestPolicy: ` + request + `}}}`
		if err := yaml.UnmarshalStrict([]byte(spec), &e); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, v1alpha1.BandwidthRemark(&e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", request, diff)
		}
	}
}

func TestNames(t *testing.T) {
	got := []string{v1alpha1.CNIAttribute("ovn-k8s.cni-overlay"), v1alpha1.QualifiedName("macvlans"), v1alpha1.QualifiedName("a.b/c")}
	if diff := cmp.Diff([]string{"ovn_k8s_cni_overlay", "dra.networking/macvlans", "a.b/c"}, got); diff != "" {
		t.Error(diff)
	}
}
