package cnichain

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// TestRunsOfAddresses checks that a topology is rejected when it is created if its plugin would reject an address run
// when a pod starts. Nodes still accept such topologies, since earlier versions accepted them.
func TestRunsOfAddresses(t *testing.T) {
	const missing = "ranges: Required value: host-local does not work without it: write subnet, such as " +
		"10.20.0.0/24, or ranges, or name an AddressRange in the step's addressRange"
	for ipam, want := range map[string][]string{
		`type: host-local`:                       {missing},
		`type: host-local, routes: []`:           {missing},
		`type: host-local, ranges: []`:           {missing},
		`type: host-local, rangeStart: 10.1.0.5`: {missing},
		`type: host-local, subent: 10.1.0.0/24`:  {`subent: Invalid value: host-local has no parameter`},
		`type: host-local}, addressRange: {r`:    nil,
		`type: host-local, ranges: [[]]`: {"ranges[0]: Required value: host-local does not accept an empty " +
			"list"},

		`type: host-local, subnet: 10.20.0.0/24, rangeStart: 10.20.0.9, rangeEnd: 10.20.0.9`: nil,

		`type: host-local, subnet: 10.20.0.0/24, gateway: 10.21.0.1`: nil,

		`type: host-local, subnet: 10.20.0.0/24, rangeStart: 10.21.0.1`: {
			`rangeStart: Invalid value: "10.21.0.1": is outside of subnet 10.20.0.0/24: name an address of it, or ` +
				`another subnet`},
		`type: host-local, subnet: 10.20.0.0/24, rangeStart: 10.21.0.1, rangeEnd: "fd00::1"`: {
			`rangeStart: Invalid value: "10.21.0.1": is outside`, `rangeEnd: Invalid value: "fd00::1": is outside`},
		`type: host-local, subnet: 10.20.0.0/24, rangeStart: 10.20.0.9, rangeEnd: 10.20.0.8`: {
			`rangeEnd: Invalid value: "10.20.0.8": is before rangeStart, which is 10.20.0.9: swap them`},
		`type: host-local, subnet: 10.20.0.7/24`: {
			`subnet: Invalid value: "10.20.0.7/24": has host bits set: write 10.20.0.0/24`},
		`type: host-local, subnet: 10.20.0.7/32`: {
			`subnet: Invalid value: "10.20.0.7/32": has no address that a pod could get: write a larger one`},
		`type: host-local, subnet: 10.20.0.4/30`: nil,
		`type: host-local, ranges: [[{subnet: 10.20.0.6/31}], [{subnet: "fd00::/127"}]]`: {
			`ranges[0][0].subnet: Invalid value: "10.20.0.6/31": has no address`,
			`ranges[1][0].subnet: Invalid value: "fd00::/127": has no address`},
		`type: host-local, ranges: [[{subnet: 10.1.0.0/24}], [{subnet: "fd00::/64", rangeEnd: "fd01::1"}]]`: {
			`ranges[1][0].rangeEnd: Invalid value: "fd01::1": is outside of subnet fd00::/64`},
		`type: host-local, ranges: [[{subnet: 10.1.0.0/24}, {subnet: "fd00::/64"}]]`: {
			`ranges[0][1].subnet: Invalid value: "fd00::/64": is of another IP family than 10.1.0.0/24: a pod gets`},
		`type: host-local, subnet: 10.1.0.0/24, ranges: [[{subnet: 10.1.0.0/16, rangeStart: 10.1.0.254}]]`: {
			`ranges[0][0]: Invalid value: "10.1.0.254-10.1.255.254": has addresses of ` +
				`spec.steps[0].config.ipam, which is 10.1.0.1-10.1.0.254: name each address once`},
		`type: host-local, ranges: [[{subnet: 10.1.0.0/24, rangeEnd: 10.1.0.9}, {subnet: 10.1.0.0/24, ` +
			`rangeStart: 10.1.0.10}]]`: nil,

		// Template values are only known for a specific pod.
		`type: host-local, subnet: "{{ device.net }}", rangeStart: 10.1.0.5`:                                      nil,
		`type: host-local, subnet: 10.1.0.0/24, rangeStart: "{{ device.first }}", rangeEnd: 10.1.0.9`:             nil,
		`type: host-local, ranges: [[{subnet: "{{ device.net }}", rangeStart: 10.1.0.5}, {subnet: 10.1.0.0/24}]]`: nil,
		`type: host-local, ranges: [[{subnet: 10.1.0.0/24, rangeEnd: "{{ device.last }}"}, {subnet: 10.1.0.0/24, ` +
			`rangeStart: 10.1.0.200}]]`: nil,
		`type: host-local, subnet: "{{ device.net }}", rangeStart: 10.1.0.5, rangeEnd: 10.1.0.4`: {
			`rangeEnd: Invalid value: "10.1.0.4": is before rangeStart, which is 10.1.0.5`},
		// A value that cannot be parsed is reported only once, by the format check.
		`type: host-local, subnet: 10.300.0.0/24, rangeStart: 10.1.0.5`: {`subnet: Invalid value: "10.300.0.0/24"`},
		// The ranges are in the runtime configuration.
		`type: host-local}, runtimeConfig: {ipRanges: [[{subnet: 10.1.0.0/24}]]`: nil,
		// The schema for static does not declare keys for runs.
		`type: static, addresses: [{address: 10.1.0.5/24}]`: nil,
	} {
		config := "config: {mode: bridge, ipam: {" + ipam + "}}"
		if rest, ranged := strings.CutSuffix(ipam, "}, addressRange: {r"); ranged {
			config = "addressRange: r, config: {mode: bridge, ipam: {" + rest + "}}"
		}
		written := topology(t, `[{name: a, type: macvlan, selector: {cel: "true"}, `+config+"}]")
		problems := Validate(written, DefaultSchemas())
		if len(problems) != len(want) {
			t.Errorf("%s\ngot %d problems, want %d: %v", ipam, len(problems), len(want), problems)
			continue
		}
		for i := range problems {
			if got := problems[i].Error(); !strings.HasPrefix(got, "spec.steps[0].config.ipam."+want[i]) {
				t.Errorf("%s\ngot  %s\nwant %s", ipam, got, want[i])
			}
		}
		if stored := ValidateStored(written, DefaultSchemas()); len(stored) > 0 {
			t.Errorf("%s\nrejected by a node: %v", ipam, stored)
		}
	}
}

// TestRunsOfAddressesOfOtherPlugins checks that the keys are taken from the plugin's schema.
func TestRunsOfAddressesOfOtherPlugins(t *testing.T) {
	var schema v1alpha1.CNIPluginSchema
	if err := yaml.UnmarshalStrict([]byte(`{cniType: mine, output: {interfaces: none},
addressBlocks: {parameter: blocks, network: net, first: low, last: high},
config: {required: [blocks], properties: {blocks: {type: array}, pool: {type: string}}}}`), &schema.Spec); err != nil {
		t.Fatal(err)
	}
	const ipam = "spec.steps[0].config.ipam."
	for config, want := range map[string]string{
		`{type: mine, blocks: [[{net: 10.1.0.0/24, low: 10.2.0.1}]]}`: ipam + `blocks[0][0].low: Invalid value: ` +
			`"10.2.0.1": is outside of net 10.1.0.0/24: name an address of it, or another net`,
		`{type: mine, blocks: [[{net: 10.1.0.0/24, low: 10.1.0.5, high: 10.1.0.5}]]}`: "",
		`{type: mine}`: ipam + "blocks: Required value: mine does not work without it: write blocks, or name an " +
			"AddressRange in the step's addressRange",
	} {
		got := ""
		written := topology(t, `[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: `+config+"}}]")
		if problems := Validate(written, DefaultSchemas().With(schema)); len(problems) > 0 {
			got = problems.ToAggregate().Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", config, got, want)
		}
	}
}
