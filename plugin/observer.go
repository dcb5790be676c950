package plugin

import (
	"context"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
)

// reporter reports the results for pods to the kubelet and the API server. The driver must be fully built before the
// first call. The embedded status writer provides AttachFailed and DetachFailed.
type reporter struct {
	*status.Writer
	driver *Driver
}

var _ attach.Observer = &reporter{}

// DescribeClaims implements Observer.
func (r *reporter) DescribeClaims(ctx context.Context, records []claims.Record) (complete bool) {
	return r.driver.describe(ctx, records)
}

// Attached implements Observer.
func (r *reporter) Attached(records []claims.Record) {
	for i := range records {
		r.Changed(records[i].Claim.UID)
		r.driver.networks.Changed(records[i].Claim.UID)
	}
}

// AttachedLate implements Observer.
func (r *reporter) AttachedLate(_ executor.Pod, records []claims.Record) {
	r.driver.Health.Attached(records)
}

// InterfacesChanged implements Observer. It also triggers the publisher: if an interface is missing, the device may no
// longer exist, or an application may have moved it elsewhere, which causes no event in the host's namespace.
func (r *reporter) InterfacesChanged(pod executor.Pod, claimUIDs []string, err error) {
	for _, uid := range claimUIDs {
		r.Changed(uid)
	}
	if err != nil {
		r.InterfacesLost(pod, err)
	}
	r.driver.Health.Changed()
	r.driver.Publisher.Trigger()
}
