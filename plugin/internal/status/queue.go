package status

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// queue contains the UIDs of the claims to be written, without duplicates.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
}

func newQueue() queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 2*time.Minute)
	return queue{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// run writes the claims in records, and then every claim that is added, until ctx is done. It logs failures with the
// given message and retries them. One worker is sufficient: it writes one claim after another, so no two writes for a
// claim overlap.
func (q queue) run(
	ctx context.Context, records claims.Snapshot, write func(context.Context, string) error, failed string,
) {
	for i := range records {
		q.Add(records[i].Claim.UID)
	}
	defer context.AfterFunc(ctx, q.ShutDown)()
	for {
		uid, shutdown := q.Get()
		if shutdown {
			return
		}
		if err := write(ctx, uid); err != nil {
			klog.FromContext(ctx).Error(err, failed, "claimUID", uid)
			q.AddRateLimited(uid)
		} else {
			q.Forget(uid)
		}
		q.Done(uid)
	}
}
