package nodeclient

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

func TestInterfacesAsText(t *testing.T) {
	have := interfaceTexts([]nodestate.Interface{
		{Interface: "net1", IPs: []string{"10.0.0.1/24"}},
		{DeviceNodes: []string{"/dev/vfio/7"}},
		{Interface: "net2", RDMA: []cnichain.VerbsDevice{
			{Name: "mlx5_0", GIDs: []cnichain.GID{{Index: 3, Type: "RoCE v2"}, {Index: 2, Type: "RoCE v1"}}},
			{Name: "mlx5_1"},
		}, RDMAUnknown: "no such file"},
		{},
	})
	if diff := cmp.Diff([]string{"net1 10.0.0.1/24", "/dev/vfio/7",
		"net2 mlx5_0 GID 3 (RoCE v2) mlx5_1 some GIDs are unknown: no such file"}, have); diff != "" {
		t.Errorf("wrong texts (-want +got):\n%s", diff)
	}
}

// A claim with external attachment does not have a sandbox and does not wait for one.
func TestStatesOfClaimsWithoutSandboxes(t *testing.T) {
	external := cnichain.Plan{External: []cnichain.PlanStep{{Name: "a"}}}
	chain := cnichain.Plan{Steps: []cnichain.PlanStep{{Name: "a"}}}
	for want, record := range map[string]nodestate.Claim{
		Reserved: {ClaimRecord: nodestate.ClaimRecord{Plans: []cnichain.Plan{external}}},
		Prepared: {ClaimRecord: nodestate.ClaimRecord{Plans: []cnichain.Plan{external, chain}}},
		Unused:   {ClaimRecord: nodestate.ClaimRecord{Plans: []cnichain.Plan{external}}, Unused: true},
	} {
		if got := claim(&record, nil).State; got != want {
			t.Errorf("state is %s, want %s", got, want)
		}
	}
}
