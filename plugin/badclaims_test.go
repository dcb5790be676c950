package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
)

// Prepare rejects claims that can never succeed and returns the errors from claimspec. Rejected claims hold no devices.
func TestPrepareRefusesBadClaims(t *testing.T) {
	for _, bad := range claimspectest.Cases(t) {
		t.Run(bad.Name, func(t *testing.T) {
			f := newFixture(t)
			f.must(os.WriteFile(filepath.Join(f.pluginDir(), "macvlan"), nil, 0o755))
			f.offer("macvlan")
			for _, topology := range claimspectest.TopologiesByName(t) {
				f.must(f.dra.Cluster.topologies.GetStore().Add(topology))
			}
			claims, pod := bad.Allocated(t)
			pod.UID = types.UID(bad.Name)
			f.must(f.dra.Cluster.pods.GetStore().Add(pod))
			var refused []string
			for _, claim := range claims {
				claim.UID = types.UID(claim.Name)
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
					{Resource: "pods", Name: pod.Name, UID: pod.UID},
				}
				for i := range claim.Status.Allocation.Devices.Results {
					result := &claim.Status.Allocation.Devices.Results[i]
					result.Pool, result.Device = "n/up0", "up0"
				}
				results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
				f.must(err)
				if results[claim.UID].Err == nil {
					t.Errorf("invalid claim %s was prepared", claim.Name)
					continue
				}
				refused = append(refused, results[claim.UID].Err.Error())
				if _, held := f.claims.Get(string(claim.UID)); held {
					t.Errorf("invalid claim %s holds devices", claim.Name)
				}
			}
			for _, want := range bad.Wants {
				if got := strings.Join(refused, "\n"); !strings.Contains(got, want) {
					t.Errorf("rejected with %q, want %q", got, want)
				}
			}
		})
	}
}
