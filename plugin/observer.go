package plugin

import (
	"context"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// reporter reports the results for pods to the kubelet and the API server. The driver must be fully built before the
// first call.
type reporter struct{ driver *Driver }

var _ attach.Observer = reporter{}

// DescribeClaims implements Observer.
func (r reporter) DescribeClaims(ctx context.Context, records []claims.Record) (complete bool) {
	return r.driver.describe(ctx, records)
}

// Attached implements Observer.
func (r reporter) Attached(records []claims.Record) {
	for i := range records {
		r.driver.statuses.Changed(records[i].Claim.UID)
		r.driver.networks.Changed(records[i].Claim.UID)
	}
}

// AttachedLate implements Observer.
func (r reporter) AttachedLate(_ executor.Pod, records []claims.Record) {
	r.driver.health.Attached(records)
}

// AttachFailed implements Observer.
func (r reporter) AttachFailed(pod executor.Pod, records []claims.Record, err error, again time.Duration) {
	r.driver.statuses.AttachFailed(pod, records, err, again)
}

// DetachFailed implements Observer.
func (r reporter) DetachFailed(pod executor.Pod, err error) { r.driver.statuses.DetachFailed(pod, err) }

// InterfacesChanged implements Observer. It also triggers the publisher: a missing interface may mean that a device no
// longer exists, or that an application has moved it elsewhere, which causes no event in the host's namespace.
func (r reporter) InterfacesChanged(pod executor.Pod, claimUIDs []string, err error) {
	for _, uid := range claimUIDs {
		r.driver.statuses.Changed(uid)
	}
	if err != nil {
		r.driver.statuses.InterfacesLost(pod, err)
	}
	r.driver.health.Changed()
	r.driver.publisher.Trigger()
}
