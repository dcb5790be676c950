package cnichain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestRemarks(t *testing.T) {
	for steps, want := range map[string][]string{
		`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`: nil,
		`[{name: a, type: mcvlan, selector: {cel: "true"}, config: {ipam: {type: host-lokal}}}]`: {
			"no schema for plugin mcvlan, so its configuration is not checked; did you mean macvlan?",
			"no schema for plugin host-lokal, so its configuration is not checked; did you mean host-local?",
		},
		`[{name: a, type: my-own, selector: {cel: "true"}}, {name: b, type: my-own, selector: {cel: "true"}}]`: {
			"no schema for plugin my-own, so its configuration is not checked",
		},
	} {
		topology := &v1alpha1.NetworkTopology{}
		if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cnichain.Remarks(topology, cnichain.DefaultSchemas())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", steps, diff)
		}
	}
}
