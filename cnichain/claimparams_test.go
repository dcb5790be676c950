package cnichain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// bonded is a topology that accepts claim parameters for every step.
const bonded = `
- {name: left, type: macvlan, selector: {cel: "true"}, claimParameters: [mac]}
- {name: right, type: macvlan, selector: {cel: "true"}, claimParameters: [mac, interfaceName]}
- {name: bond, type: bridge, dependOn: [left, right], ifName: bond0, claimParameters: [ips, interfaceName],
   config: {runtimeConfig: {portMappings: []}, ipam: {type: host-local}}}
- {name: apart, type: macvlan, selector: {cel: "true"}}
`

func compileFor(t *testing.T, wanted map[string][]v1alpha1.ClaimParameters, instances int) (*Plan, string) {
	t.Helper()
	binding := Binding{Claim: Claim{Namespace: "ns", Name: "c", UID: "u"}, Schemas: DefaultSchemas(),
		Plugins: plugins("macvlan", "bridge", "host-local")}
	for _, step := range []string{"left", "right", "apart"} {
		for range instances {
			binding.Devices = append(binding.Devices,
				RootDevice{Step: step, Device: deviceNamed(step), Parameters: wanted[step]})
		}
	}
	plan, problems := Compile(topology(t, bonded), binding)
	if len(problems) == 0 {
		return plan, ""
	}
	return plan, problems.ToAggregate().Error()
}

func TestClaimsSayWhatTheStepsAllow(t *testing.T) {
	plan, problem := compileFor(t, map[string][]v1alpha1.ClaimParameters{
		"left":  {{MAC: "02:00:00:00:00:01"}, {Step: "bond", IPs: []string{"10.1.0.5/24", "fd00::5/64"}}},
		"right": {{MAC: "02:00:00:00:00:02", InterfaceName: "second"}, {Step: "bond", InterfaceName: "data0"}},
	}, 1)
	if problem != "" {
		t.Fatal(problem)
	}
	var got []string
	for i := range plan.Steps {
		step := &plan.Steps[i]
		config, err := Preview(step)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %q %s", step.Name, step.IfName, config))
	}
	want := []string{
		`left "" {"master":"left","runtimeConfig":{"mac":"02:00:00:00:00:01"}}`,
		`right "second" {"master":"right","runtimeConfig":{"mac":"02:00:00:00:00:02"}}`,
		`bond "data0" {"ipam":{"type":"host-local"},"runtimeConfig":{"ips":["10.1.0.5/24","fd00::5/64"],` +
			`"portMappings":[]}}`,
		`apart "" {"master":"apart"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClaimsSayNoMoreThanTheStepsAllow(t *testing.T) {
	for want, wanted := range map[string]map[string][]v1alpha1.ClaimParameters{
		`claim ns/c sets mac of step "apart", which the topology does not allow: remove it`: {"apart": {{MAC: "02:00:00:00:00:01"}}},
		`claim ns/c sets interfaceName of step "left", which the topology does not allow: set step: bond, which`: {
			"left": {{InterfaceName: "x"}}},
		`"bond": claim ns/c has parameters for it next to a request for step "apart"`: {"apart": {{Step: "bond",
			IPs: []string{"10.1.0.5/24"}}}},
		`"nowhere": claim ns/c has parameters for it`: {"left": {{Step: "nowhere",
			MAC: "02:00:00:00:00:01"}}},
		`"right": claim ns/c has parameters for it next to a request for step "left"`: {"left": {{Step: "right",
			MAC: "02:00:00:00:00:01"}}},
		`"ips": claim ns/c sets it twice for step "bond"`: {
			"left":  {{Step: "bond", IPs: []string{"10.1.0.5/24"}}},
			"right": {{Step: "bond", IPs: []string{"10.1.0.6/24"}}}},
		`"mac": claim ns/c sets it twice for step "left"`: {"left": {{MAC: "02:00:00:00:00:01"},
			{MAC: "02:00:00:00:00:02"}}},
		`"eth0" belongs to the pod's own network`: {"right": {{InterfaceName: "eth0"}}},
		`no slash`:                            {"right": {{InterfaceName: "../x"}}},
		`or text that is not printable ASCII`: {"right": {{InterfaceName: "a\x00b"}}},
		`"\x1b[2J" is not`:                    {"right": {{InterfaceName: "\x1b[2J"}}},
	} {
		if _, problem := compileFor(t, wanted, 1); !strings.Contains(problem, want) {
			t.Errorf("problem = %q, want %q", problem, want)
		}
	}
}

// A step without configured addresses requires every claim to set addresses. Claims without parameters (such as the
// claim for a pod's extended resources) and claims that set only other parameters are rejected.
func TestClaimsSayTheAddressesThatAStepNeeds(t *testing.T) {
	const steps = `
- {name: left, type: macvlan, selector: {cel: "true"}, claimParameters: [ips, interfaceName],
   config: {ipam: {type: static}}}
`
	schemas := DefaultSchemas().With(v1alpha1.CNIPluginSchema{Spec: v1alpha1.CNIPluginSchemaSpec{CNIType: "static",
		Capabilities: []v1alpha1.Capability{v1alpha1.CapabilityIPs}}})
	const missing = `claim ns/c has no ips for step "left", which gets addresses from claims only: add an opaque ` +
		"configuration of kind ClaimParameters with ips to a claim that the pod names"
	for want, devices := range map[string][]RootDevice{
		"": {{Parameters: []v1alpha1.ClaimParameters{{IPs: []string{"192.0.2.1/24"}}}}},
		"spec.steps[0].claimParameters: Required value: " + missing: {{}},
		missing: {{Parameters: []v1alpha1.ClaimParameters{{IPs: []string{"192.0.2.1/24"}}}},
			{Parameters: []v1alpha1.ClaimParameters{{InterfaceName: "data0"}}}}, // without addresses
	} {
		binding := Binding{Claim: Claim{Namespace: "ns", Name: "c", UID: "u"}, Schemas: schemas,
			Plugins: plugins("macvlan", "static")}
		for i := range devices {
			devices[i].Step, devices[i].Device = "left", deviceNamed("left")
			binding.Devices = append(binding.Devices, devices[i])
		}
		_, problems := Compile(topology(t, steps), binding)
		if want == "" && len(problems) > 0 ||
			want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), want)) {
			t.Errorf("problems = %v, want %q", problems, want)
		}
		binding.WithoutClaim = true
		if _, problems := Compile(topology(t, steps), binding); len(problems) > 0 {
			t.Errorf("unexpected problems without a claim: %v", problems)
		}
	}
}

func TestInterfaceNamesOfClaimsAreOrdinary(t *testing.T) {
	for _, name := range []string{"{{a.b}}", "$(reboot)", "';ls;'", "--help", "net1|tee", "a*", ".hidden", "_x", "a\\b",
		"all", "default"} {
		if _, problem := compileFor(t, map[string][]v1alpha1.ClaimParameters{"right": {{InterfaceName: name}}},
			1); !strings.Contains(problem, "is not a valid interface name") {
			t.Errorf("%s: problem = %q, want an invalid interface name", name, problem)
		}
	}
	for _, name := range []string{"net1", "data-0.100", "A_b", "9p"} {
		if _, problem := compileFor(t, map[string][]v1alpha1.ClaimParameters{"right": {{InterfaceName: name}}},
			1); problem != "" {
			t.Errorf("%s: unexpected problem: %q", name, problem)
		}
	}
}

// Parameters in a claim apply to one instance, and each instance has its own parameters.
func TestInstancesHaveWishesOfTheirOwn(t *testing.T) {
	binding := Binding{Claim: Claim{Namespace: "ns", Name: "c"}, Schemas: DefaultSchemas(), Plugins: plugins("macvlan")}
	for i, mac := range []string{"02:00:00:00:00:01", "02:00:00:00:00:02"} {
		binding.Devices = append(binding.Devices, RootDevice{Step: "link", Device: deviceNamed(fmt.Sprintf("up%d", i)),
			Parameters: []v1alpha1.ClaimParameters{{MAC: mac}}})
	}
	plan, problems := Compile(topology(t,
		`[{name: link, type: macvlan, selector: {cel: "true"}, claimParameters: [mac]}]`), binding)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	macs := []string{plan.Steps[0].MAC, plan.Steps[1].MAC}
	if !slices.Equal(macs, []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}) {
		t.Errorf("MAC addresses = %v, want those of the claim, in order", macs)
	}
}
