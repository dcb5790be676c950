package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/keylock"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
)

// unprepareLimit covers one call of a plugin with its limit of 30 s, and some seconds for the journal: the response
// must arrive before the kubelet gives up, otherwise its error is lost. The next call continues the work.
const unprepareLimit = 35 * time.Second

// releaser releases claims: when the kubelet requests it, when a claim was allocated again, and when the devices of a
// claim without pods were allocated to another claim.
type releaser struct {
	cluster   *cluster
	publisher *publish.Publisher
	claims    *claims.Store
	sandboxes *attach.Sandboxes
	executor  *executor.Executor
	external  *external.Files
	statuses  *status.Writer
	health    *status.Health
	// locks serializes Prepare and release by the UID of a claim.
	locks *keylock.Locks
	// work ends when the driver stops.
	work context.Context

	// evicting contains the UIDs of claims that are being evicted.
	evicting sync.Map
}

// unprepareToTheEnd completes a release even if the driver is being stopped: the gRPC server does not wait for running
// calls, and a plugin would be killed with the driver. The response waits for the end, too, since the kubelet forgets a
// claim as soon as a call succeeds.
func (r *releaser) unprepareToTheEnd(ctx context.Context, uid string) error {
	result := make(chan error, 1)
	if !r.sandboxes.GoTracked(func() { result <- r.unprepare(ctx, uid) }) {
		return attach.ShutdownError("release the claim")
	}
	return <-result
}

func (r *releaser) unprepare(ctx context.Context, uid string) error {
	unlock, err := r.locks.Acquire(ctx, uid)
	if err != nil {
		return fmt.Errorf("another call for the claim takes too long: %w; %s", err, attach.SlowRemedy)
	}
	defer unlock()
	return r.release(ctx, uid)
}

// rivalsOf returns the rules for claims that hold devices of another claim. An earlier claim of the same name no longer
// has pods: the kubelet has just read the claim with that name from the API server. Otherwise a pod that waits for the
// new claim would keep the old claim from being released.
func (r *releaser) rivalsOf(claim cnichain.Claim) claims.Rivals {
	podsNaming := func(holder *claims.Record) []*corev1.Pod {
		if holder.Claim.Namespace == claim.Namespace && holder.Claim.Name == claim.Name {
			return nil
		}
		return r.cluster.podsWithClaim(holder.Claim.Namespace, holder.Claim.Name)
	}
	return claims.Rivals{
		IsLeaving: func(holder *claims.Record) bool { return r.isLeaving(holder, podsNaming(holder)) },
		Evict:     func(holder *claims.Record) { r.evict(holder, podsNaming(holder)) },
	}
}

// isLeaving reports whether a claim is being released or is about to be: its pods, both its consumers and the pods that
// name it, are gone. The kubelet releases a claim some time after its pod was deleted by force.
func (r *releaser) isLeaving(record *claims.Record, naming []*corev1.Pod) bool {
	if r.sandboxes.IsReleasing(record.Claim.UID) {
		return true
	}
	return !slices.ContainsFunc(record.Consumers, func(consumer claims.Consumer) bool {
		return !r.cluster.podIsLeaving(consumer.PodUID)
	}) && !slices.ContainsFunc(naming, func(pod *corev1.Pod) bool { return !isLeaving(pod) })
}

// evict releases a claim whose device the scheduler has allocated to another claim, if the API server reports that it
// has no allocation and no pod: its pods were force-deleted. The kubelet would release it some seconds later, after it
// ended the containers. They lose their interfaces meanwhile, as in every forced deletion.
func (r *releaser) evict(record *claims.Record, naming []*corev1.Pod) {
	uid := record.Claim.UID
	if r.sandboxes.IsReleasing(uid) || len(naming) > 0 || !r.isAbandoned(record) {
		return
	}
	// Every claim that waits for the device calls evict once a second.
	if _, begun := r.evicting.LoadOrStore(uid, true); begun {
		return
	}
	begun := r.sandboxes.GoTracked(func() {
		defer r.evicting.Delete(uid)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), unprepareLimit)
		defer cancel()
		logger := klog.FromContext(r.work).WithValues("claim", record.Claim.String())
		unlock, err := r.locks.Acquire(ctx, uid)
		if err != nil {
			return // it is being prepared or released
		}
		defer unlock()
		// Check under the lock of the claim, and with the API server itself. A cache could be older than an allocation
		// that Prepare has just acted on.
		allocated, err := r.cluster.isAllocated(ctx, record)
		if err != nil || allocated {
			logger.V(2).Info("A claim without pods keeps its devices", "allocated", allocated, "err", err)
			return
		}
		if err := r.release(ctx, uid); err != nil {
			logger.Error(err, "Cannot release a claim of pods that were deleted by force; the kubelet also requests it")
			return
		}
		logger.V(2).Info("Released a claim of pods that were deleted by force, because another claim has its devices")
	})
	if !begun {
		r.evicting.Delete(uid)
	}
}

// isAbandoned reports whether none of the known users of a claim exists in the API server.
func (r *releaser) isAbandoned(record *claims.Record) bool {
	for _, consumer := range record.Consumers {
		if !r.cluster.podUIDIsGone(consumer.PodUID) {
			return false
		}
	}
	return !slices.ContainsFunc(r.sandboxes.Users(record.Claim.UID),
		func(pod executor.Pod) bool { return !r.cluster.podUIDIsGone(pod.UID) })
}

// release returns every device to the host. The caller has the claim's lock.
//
// The order matters if the process ends in between. Devices return first and are verified. Then the record is deleted,
// which frees them for other claims. The remaining steps concern files, which a sweep repairs, and status of the claim.
func (r *releaser) release(ctx context.Context, uid string) error {
	done, err := r.sandboxes.ReleaseClaim(ctx, uid)
	defer done()
	if err != nil {
		return err
	}
	record, held := r.claims.Get(uid)
	record.Claim.UID = uid
	if held {
		if err := r.executor.VerifyReturned(record.Plans); err != nil {
			return err
		}
	}
	r.health.Released(record.Devices) // before another claim can have them: the health of the next owner must stay
	if err := r.claims.Release(uid); err != nil {
		return err
	}
	if hasExternal(&record) {
		if err := r.external.Sync(uid); err != nil {
			return err
		}
	}
	// While the record existed, a driver without a connection only suspended the gate.
	if err := r.sandboxes.SyncGate(uid); err != nil {
		return err
	}
	r.statuses.Clear(&record)
	r.publisher.Trigger()
	return nil
}
