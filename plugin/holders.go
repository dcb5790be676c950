package plugin

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// claimStates are sorted by UID.
func (d *Driver) claimStates() []nodestate.Claim {
	records := d.claims.All()
	states := make([]nodestate.Claim, 0, len(records))
	pods, known := d.cluster.podUIDs()
	for i := range records {
		states = append(states, nodestate.Claim{ClaimRecord: records[i], Unused: known &&
			d.isOrphaned(&records[i], pods)})
	}
	return states
}

func (d *Driver) isOrphaned(record *claims.Record, pods sets.Set[string]) bool {
	for _, consumer := range record.Consumers {
		if pods.Has(consumer.PodUID) {
			return false
		}
	}
	return len(d.sandboxes.Users(record.Claim.UID)) == 0 &&
		len(d.cluster.podsWithClaim(record.Claim.Namespace, record.Claim.Name)) == 0
}
