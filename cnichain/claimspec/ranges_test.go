package claimspec_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestAddressesOfNoRange(t *testing.T) {
	inside, outside := []string{"10.1.0.5/24"}, []string{"10.2.0.5/24"}
	local := func(ranges string) string { return `{ipam: {type: host-local, ` + ranges + `}}` }
	for name, test := range map[string]struct {
		config string
		asked  []string
		want   string // empty if claims may request the addresses
	}{
		"one range":           {local(`subnet: 10.1.0.0/24`), inside, ""},
		"outside of it":       {local(`subnet: 10.1.0.0/24`), outside, "10.1.0.0/24: request"},
		"full length":         {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.5/32"}, ""},
		"another length":      {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.5/16"}, "24 bits: request 10.1.0.5/24"},
		"the network":         {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.0/24"}, "(broadcast)"},
		"network by range":    {local(`subnet: 10.1.0.0/24, rangeStart: 10.1.0.0`), []string{"10.1.0.0/24"}, ""},
		"broadcast":           {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.255/24"}, "(broadcast)"},
		"the last on its own": {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.254/24"}, ""},
		"broadcast by range":  {local(`subnet: 10.1.0.0/24, rangeEnd: 10.1.0.255`), []string{"10.1.0.255/24"}, ""},
		"the last of IPv6":    {local(`subnet: "fd00::/64"`), []string{"fd00::ffff:ffff:ffff:ffff/64"}, ""},
		"the gateway":         {local(`subnet: 10.1.0.0/24`), []string{"10.1.0.1/24"}, "gateway"},
		"another gateway":     {local(`subnet: 10.1.0.0/24, gateway: 10.1.0.9`), []string{"10.1.0.9/24"}, "gateway"},
		"the first, with another gateway": {local(`subnet: 10.1.0.0/24, gateway: 10.1.0.9`),
			[]string{"10.1.0.1/24"}, ""},
		"gateway of IPv6":  {local(`subnet: "fd00::/64"`), []string{"fd00::1/64"}, "gateway"},
		"before the first": {local(`subnet: 10.1.0.0/24, rangeStart: 10.1.0.9`), []string{"10.1.0.8/24"}, "10.1.0.9"},
		"the first":        {local(`subnet: 10.1.0.0/24, rangeStart: 10.1.0.9`), []string{"10.1.0.9/24"}, ""},
		"the last":         {local(`subnet: 10.1.0.0/24, rangeEnd: 10.1.0.9`), []string{"10.1.0.9/24"}, ""},
		"ends as IPv4 in IPv6": {local(
			`subnet: 10.1.0.0/24, rangeStart: "::ffff:10.1.0.5", rangeEnd: "::ffff:10.1.0.9"`),
			[]string{"10.1.0.5/24"}, ""},
		"after the last": {local(`subnet: 10.1.0.0/24, rangeEnd: 10.1.0.9`), []string{"10.1.0.10/24"},
			"10.1.0.0/24 (up to 10.1.0.9)"},
		"of two sets": {local(`ranges: [[{subnet: 10.1.0.0/24}], [{subnet: "fd00::/64"}]]`),
			[]string{"10.1.0.5/24", "fd00::5/64"}, ""},
		"of neither": {local(`ranges: [[{subnet: 10.1.0.0/24}], [{subnet: "fd00::/64"}]]`),
			[]string{"10.1.0.5/24", "fd01::5/64"}, `"fd01::5/64"`},
		"template": {local(`subnet: "{{ .Device.Attributes.subnet }}"`), outside, ""},
		"template of an end": {local(`subnet: 10.1.0.0/24, rangeEnd: "{{ .x }}"`), outside,
			""},
		"ranges of the runtime": {local(`subnet: 10.1.0.0/24}, runtimeConfig: {ipRanges: []`),
			outside, ""},
		"no ranges":      {`{ipam: {type: host-local}}`, outside, ""},
		"another plugin": {`{ipam: {type: whereabouts, subnet: 10.1.0.0/24}}`, outside, ""},
		"unreadable":     {local(`ranges: 7`), outside, ""},
		"no IPAM plugin": {`{}`, outside, ""},
	} {
		t.Run(name, func(t *testing.T) {
			topology := &v1alpha1.NetworkTopology{}
			if err := yaml.UnmarshalStrict([]byte(`{spec: {steps: [{name: a, type: macvlan, claimParameters: [ips], `+
				`config: `+test.config+`}]}}`), topology); err != nil {
				t.Fatal(err)
			}
			spec := claimspec.Spec{Topology: topology, Claim: "ns/c"}
			got := spec.CheckAddresses(map[string]v1alpha1.ClaimParameters{"a": {IPs: test.asked}})
			if len(got) != min(len(test.want), 1) {
				t.Fatalf("unexpected problems: %v", got)
			}
			if len(got) == 1 && !strings.Contains(got[0].Error(), test.want) {
				t.Errorf("problem = %v, want %q", got[0], test.want)
			}
		})
	}
}
