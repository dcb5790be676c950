package cnichain_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
)

func TestGoTakesValidTopologies(t *testing.T) {
	for _, c := range corpus.Valid(t) {
		topology, err := c.Topology(t)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for _, problem := range cnichain.Validate(topology, cnichain.DefaultSchemas()) {
			t.Errorf("%s: %v", c.Name, problem)
		}
	}
}

// TestGoRefusesInvalidTopologies checks that the Go validation rejects every invalid topology in the corpus with a
// single error that contains the expected field and text, and that nodes accept only the topologies marked accordingly.
func TestGoRefusesInvalidTopologies(t *testing.T) {
	for _, c := range corpus.Invalid(t) {
		t.Run(c.Name, func(t *testing.T) {
			topology, err := c.Topology(t)
			if err != nil {
				t.Fatal(err)
			}
			expectOne(t, c, cnichain.Validate(topology, cnichain.DefaultSchemas()))
			stored := cnichain.ValidateStored(topology, cnichain.DefaultSchemas())
			if nodeTakes := len(stored) == 0; nodeTakes != c.Written {
				t.Errorf("accepted by a node: %t, want %t: %v", nodeTakes, c.Written, stored)
			}
		})
	}
}

func TestGoRefusesInvalidSchemas(t *testing.T) {
	for _, c := range corpus.InvalidSchemas(t) {
		t.Run(c.Name, func(t *testing.T) {
			schema, err := c.Schema(t)
			if err != nil {
				t.Fatal(err)
			}
			expectOne(t, c, cnichain.ValidateSchema(&schema.Spec))
		})
	}
}

func TestBuiltInSchemasAreValid(t *testing.T) {
	for cniType, spec := range cnichain.DefaultSchemas().All() {
		for _, problem := range cnichain.ValidateSchema(&spec) {
			t.Errorf("%s: %v", cniType, problem)
		}
	}
}

func expectOne(t *testing.T, c corpus.Case, problems field.ErrorList) {
	t.Helper()
	if len(problems) != 1 {
		t.Fatalf("got %d problems, want 1: %v", len(problems), problems)
	}
	if problems[0].Field != c.Field || !strings.Contains(problems[0].Error(), c.Reason) {
		t.Errorf("got  %v\nwant %s: ... %s ...", problems[0], c.Field, c.Reason)
	}
}

// TestContractsOfTheCluster tests contract features that no built-in schema uses.
func TestContractsOfTheCluster(t *testing.T) {
	steps := `
- {name: a, type: host-device, selector: {cel: "true"}}
- {name: b, type: host-device, selector: {cel: "true"}}
- {name: c, type: mine, dependOn: [a, b], ifName: net9, config: {ratio: 0.5, list: [1, "2"], free: {any: thing}}}
`
	for name, test := range map[string]struct {
		schema string
		want   []string // parts of the problems, in order
	}{
		"takes everything": {`{cniType: mine}`, nil},
		"too many": {`{cniType: mine, input: {interfaces: {max: 1}}}`,
			[]string{"spec.steps[2].dependOn: Invalid value: [\"a\",\"b\"]: mine works on 1 interface at most, and " +
				"the steps in dependOn make 2 (a, b): name fewer steps"}},
		"enough": {`{cniType: mine, input: {interfaces: {min: 2, max: 2}}}`, nil},
		"numbers": {`{cniType: mine, config: {properties: {ratio: {type: number, minimum: 1}, list: {type: array, ` +
			`items: {type: integer}}, free: {type: object}}}}`,
			[]string{"config.list[1]: Invalid value: \"2\": is a string, must be a whole number",
				"config.ratio: Invalid value: 0.5: must be at least 1"}},
		"further fields": {`{cniType: mine, config: {properties: {ratio: {type: number}, list: {}, free: {type: ` +
			`object, additionalProperties: {type: integer}}}}}`,
			[]string{"config.free[any]: Invalid value: \"thing\": is a string, must be a whole number"}},
		"no parameters": {`{cniType: mine, config: {}}`,
			[]string{"config.free: Invalid value: mine has no parameter of that name; it has args, capabilities",
				"config.list", "config.ratio"}},
	} {
		t.Run(name, func(t *testing.T) {
			topology, schema := &v1alpha1.NetworkTopology{}, v1alpha1.CNIPluginSchema{}
			if err := errors.Join(yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps),
				yaml.UnmarshalStrict([]byte(test.schema), &schema.Spec)); err != nil {
				t.Fatal(err)
			}
			problems := cnichain.Validate(topology, cnichain.DefaultSchemas().With(schema))
			if len(problems) != len(test.want) {
				t.Fatalf("got %d problems, want %d: %v", len(problems), len(test.want), problems)
			}
			for i, problem := range problems {
				if !strings.Contains(problem.Error(), test.want[i]) {
					t.Errorf("got  %v\nwant ... %s ...", problem, test.want[i])
				}
			}
		})
	}
}

// TestExtendedResourcesWithoutAddresses checks that an extended resource name is rejected if any step gets its
// addresses only from claims. That step may be the one with the name, or one that depends on it. A pod that requests an
// extended resource has no claim of its own that could set addresses.
func TestExtendedResourcesWithoutAddresses(t *testing.T) {
	var static v1alpha1.CNIPluginSchema
	if err := yaml.UnmarshalStrict([]byte("{cniType: static, output: {interfaces: none}, capabilities: [ips]}"),
		&static.Spec); err != nil {
		t.Fatal(err)
	}
	schemas := cnichain.DefaultSchemas().With(static)
	const root = `{name: a, type: macvlan, selector: {cel: "true"}, extendedResourceName: example.com/a`
	refused := `spec.steps[0].extendedResourceName: Forbidden: step "STEP" gets addresses from claims only, and a pod ` +
		"that requests an extended resource has no claim that could set them: name addresses in its config.ipam, or " +
		"remove extendedResourceName"
	ofRoot, ofLater := strings.Replace(refused, "STEP", "a", 1), strings.Replace(refused, "STEP", "b", 1)
	for steps, want := range map[string]string{
		root + `, claimParameters: [ips], config: {ipam: {type: static}}}`:                                                     ofRoot,
		root + `, claimParameters: [ips], config: {ipam: {type: static, addresses: []}}}`:                                      ofRoot,
		root + `, claimParameters: [ips], config: {ipam: {type: static, addresses: [{address: 192.0.2.1/24}]}}}`:               "",
		root + `, claimParameters: [ips], config: {ipam: {type: static}, args: {cni: {ips: [192.0.2.1/24]}}}}`:                 "",
		root + `, claimParameters: [ips], config: {ipam: {type: static}, runtimeConfig: {ips: [192.0.2.1/24]}}}`:               "",
		root + `, claimParameters: [ips], config: {ipam: {type: host-local, subnet: 192.0.2.0/24}}}`:                           "",
		root + `}, {name: b, type: bridge, dependOn: [a], ifName: b0, claimParameters: [ips], config: {ipam: {type: static}}}`: ofLater,
		`{name: a, type: macvlan, selector: {cel: "true"}, claimParameters: [ips], config: {ipam: {type: static}}}`:            "",
	} {
		topology := &v1alpha1.NetworkTopology{}
		if err := yaml.UnmarshalStrict([]byte("["+steps+"]"), &topology.Spec.Steps); err != nil {
			t.Fatal(err)
		}
		got := ""
		if problems := cnichain.Validate(topology, schemas); len(problems) > 0 {
			got = problems.ToAggregate().Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", steps, got, want)
		}
		if stored := cnichain.ValidateStored(topology, schemas); len(stored) > 0 {
			t.Errorf("%s\nrejected by a node: %v", steps, stored) // nodes attach claims that set addresses
		}
	}
}
