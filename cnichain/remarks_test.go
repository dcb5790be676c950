package cnichain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestRemarks(t *testing.T) {
	schemas := cnichain.DefaultSchemas().With(
		schema("risky", "it writes to the NIC: keep a copy"),
		schema("leaky", "its addresses are never free again"),
		schema("dhcp", "the site has one server only"), // replaces the built-in schema
	)
	for steps, want := range map[string][]string{
		`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`: nil,
		`[{name: a, type: mcvlan, selector: {cel: "true"}, config: {ipam: {type: host-lokal}}}]`: {
			"no schema for plugin mcvlan, so its configuration is not checked",
			"no schema for plugin host-lokal, so its configuration is not checked",
		},
		`[{name: a, type: my-own, selector: {cel: "true"}}, {name: b, type: my-own, selector: {cel: "true"}}]`: {
			"no schema for plugin my-own, so its configuration is not checked",
		},
		`[{name: a, type: risky, selector: {cel: "true"}},
		  {name: b, type: risky, selector: {cel: "true"}, config: {ipam: {type: leaky}}},
		  {name: c, type: host-device, selector: {cel: "true"}, config: {ipam: {type: risky}}}]`: {
			"plugin risky: it writes to the NIC: keep a copy",
			"plugin leaky: its addresses are never free again",
		},
		`[{name: a, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, routes: [{dst: 10.2.0.0/16}, {dst: 0.0.0.0/0}]}}}]`: {
			"step a: it adds a default route, so a pod that has one from the cluster network does not start: remove " +
				"the route, or set defaultRoute: true if the network is meant to carry the pod's other traffic",
		},
		`[{name: b, type: bridge, selector: {cel: "true"}, config: {isDefaultGateway: true, ipam: {type: dhcp}}}]`: {
			"plugin dhcp: the site has one server only",
			"step b: it adds a default route, so a pod that has one from the cluster network does not start: remove " +
				"the route, or set defaultRoute: true if the network is meant to carry the pod's other traffic",
		},
		`[{name: a, type: macvlan, selector: {cel: "true"}, defaultRoute: true,
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, routes: [{dst: 0.0.0.0/0}]}}}]`: nil,
		`[{name: a, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, routes: [{dst: 0.0.0.0/0}]}}},
		  {name: b, type: sbr, dependOn: [a]}]`: nil,
		`[{name: a, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, routes: [{dst: 0.0.0.0/0, priority: 200}]}}}]`: nil,
		`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}},
		  {name: b, type: sriov, selector: {cel: "true"}, config: {ipam: {type: dhcp}}}]`: {
			"plugin dhcp: the site has one server only",
		},
		`[{name: a, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: static, addresses: [{address: 10.1.0.5/24}, {address: "fd00::5/64"}]}}},
		  {name: b, type: macvlan, selector: {cel: "true"}, claimParameters: [ips], config: {ipam: {type: static}}},
		  {name: c, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: static, addresses: [{address: "{{ device.address }}"}]}}}]`: {
			"step a: every pod gets the address 10.1.0.5/24: if two pods may exist at the same time, set " +
				"addressRange of the step, or ipam type host-local, whose addresses are unique on each node only",
		},
		`[{name: a, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, dataDir: /var/lib/cni/../mine}}},
		  {name: b, type: macvlan, selector: {cel: "true"},
		   config: {ipam: {type: host-local, subnet: 10.1.0.0/24, dataDir: /var/lib/cni/mine}}},
		  {name: c, type: tuning, dependOn: [a], config: {dataDir: "/run/cni"}}]`: {
			"step a: data in dataDir /var/lib/cni/../mine, such as addresses in use, is lost when the " +
				"driver's pod is replaced, unless that mounts the folder of the host (node.extraMounts of the " +
				"chart): remove dataDir, or use a folder below /var/lib/cni",
		},
		`[{name: up, type: netdev, selector: {cel: "true"}},
		  {name: tag, type: vlan, dependOn: [up], config: {vlanId: 7, master: "{{up.interfaceName}}"}},
		  {name: b, type: bond, dependOn: [up], config: {links: [{name: "{{ up.interfaceName }}"}]}}]`: {
			"step tag: vlan looks for the interface of step up on the host, where it does not exist: set " +
				"linkInContainer: true",
			"step b: bond looks for the interface of step up on the host, where it does not exist: set " +
				"linksInContainer: true",
		},
		`[{name: up, type: netdev, selector: {cel: "true"}},
		  {name: tag, type: vlan, dependOn: [up],
		   config: {vlanId: 7, master: "{{ up.interfaceName }}", linkInContainer: true}},
		  {name: host, type: vlan, dependOn: [up], config: {vlanId: 7, master: eth7}},
		  {name: tune, type: tuning, dependOn: [up], config: {mtu: 1400}}]`: nil,
	} {
		topology := &v1alpha1.NetworkTopology{}
		if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cnichain.Remarks(topology, schemas)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", steps, diff)
		}
	}
}

func schema(cniType, remark string) v1alpha1.CNIPluginSchema {
	return v1alpha1.CNIPluginSchema{Spec: v1alpha1.CNIPluginSchemaSpec{CNIType: cniType, Remark: remark}}
}

// TestRemarkOfABuiltInSchema checks that users of whereabouts are warned about the effect of its reconciler on this
// driver's pods, unless a schema in the cluster replaces the built-in schema.
func TestRemarkOfABuiltInSchema(t *testing.T) {
	topology := &v1alpha1.NetworkTopology{}
	const steps = `[{name: a, type: macvlan, selector: {cel: "true"},
  config: {ipam: {type: whereabouts, range: 192.0.2.0/24}}}]`
	if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
		t.Fatal(err)
	}
	remarks := cnichain.Remarks(topology, cnichain.DefaultSchemas())
	const want = "plugin whereabouts: its own reconciler frees addresses of running pods"
	if len(remarks) != 1 || !strings.HasPrefix(remarks[0], want) {
		t.Errorf("remarks = %q, want one about the whereabouts reconciler", remarks)
	}
	if remarks := cnichain.Remarks(topology,
		cnichain.DefaultSchemas().With(schema("whereabouts", ""))); len(remarks) > 0 {
		t.Errorf("remarks = %q, want none because the cluster's schema has none", remarks)
	}
}

// TestRemarksFitIntoWarnings checks the length of remarks: the API server may truncate admission webhook warnings
// longer than 256 characters.
func TestRemarksFitIntoWarnings(t *testing.T) {
	longest := schema(strings.Repeat("p", 63), strings.Repeat("ä", 180))
	if problems := cnichain.ValidateSchema(&longest.Spec); len(problems) > 0 {
		t.Fatal(problems)
	}
	topology := &v1alpha1.NetworkTopology{}
	topology.Spec.Steps = []v1alpha1.Step{{Name: "a", Type: longest.Spec.CNIType}}
	remarks := cnichain.Remarks(topology, cnichain.DefaultSchemas().With(longest))
	if len(remarks) != 1 || utf8.RuneCountInString(remarks[0]) > 256 {
		t.Errorf("got %d remarks, want one of at most 256 characters: %q", len(remarks), remarks)
	}
}
