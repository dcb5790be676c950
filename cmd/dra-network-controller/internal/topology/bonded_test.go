package topology

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// parse reads a topology and sets a UID and a generation, as the API server would.
func parse(t *testing.T, text string) *v1alpha1.NetworkTopology {
	t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	if err := yaml.UnmarshalStrict([]byte(text), topology); err != nil {
		t.Fatalf("cannot parse the topology of this test: %v", err)
	}
	topology.UID, topology.Generation = "uid-1", 1
	return topology
}

// bonded has two root steps.
const bonded = `
metadata: {name: bonded}
spec:
  steps:
  - {name: vf0, type: host-device, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}
  - {name: vf1, type: ovn.k8s-cni, selector: {cel: "true // any\n"}}
  - {name: bond0, type: bond, dependOn: [vf0, vf1], config: {mode: active-backup, miimon: "100", links: [{name: a}, {name: b}]}}
`
