package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// unprepareLimit allows for one plugin call, which is limited to 30 s, and a few seconds for the journal. The response
// must arrive before the kubelet gives up; otherwise, the error in the response is lost. The next call continues the
// work.
const unprepareLimit = 35 * time.Second

// A claim is released if the kubelet requests this, if the claim has been allocated again, or if the claim has no pods
// and its devices have been allocated to another claim.

// unprepare releases a claim. The caller must let it run to completion even if the driver is shutting down: the gRPC
// server does not wait for running calls, and the plugins would be killed together with the driver. The response also
// waits until the release is complete, since the kubelet forgets a claim as soon as a call succeeds.
func (d *draPlugin) unprepare(ctx context.Context, uid string) error {
	unlock, err := d.locks.Acquire(ctx, uid)
	if err != nil {
		return fmt.Errorf("another call for the claim takes too long: %w; %s", err, attach.SlowRemedy)
	}
	defer unlock()
	return d.release(ctx, uid)
}

// rivalsOf returns the callbacks that decide about claims that hold devices that the given claim needs. An earlier
// claim with the same name is treated as having no pods, because the kubelet has just read the claim that now has this
// name from the API server. Otherwise, the pod that waits for the new claim would prevent the old claim from being
// released.
func (d *draPlugin) rivalsOf(claim cnichain.Claim) claims.Rivals {
	podsNaming := func(holder *claims.Record) []*corev1.Pod {
		if holder.Claim.Namespace == claim.Namespace && holder.Claim.Name == claim.Name {
			return nil
		}
		return d.Cluster.podsWithClaim(holder.Claim.Namespace, holder.Claim.Name)
	}
	return claims.Rivals{
		IsLeaving: func(holder *claims.Record) bool { return d.isLeaving(holder, podsNaming(holder)) },
		Evict:     func(holder *claims.Record) { d.evict(holder, podsNaming(holder)) },
	}
}

// isLeaving reports whether a claim is being released, or will soon be released because all of its pods (its consumers
// and the pods that name it) are terminating or no longer exist. After a pod has been force-deleted, it takes the
// kubelet some time to release the pod's claim.
func (d *draPlugin) isLeaving(record *claims.Record, naming []*corev1.Pod) bool {
	if d.Sandboxes.IsReleasing(record.Claim.UID) {
		return true
	}
	return !slices.ContainsFunc(record.Consumers, func(consumer claims.Consumer) bool {
		return !d.Cluster.podIsLeaving(consumer.PodUID)
	}) && !slices.ContainsFunc(naming, func(pod *corev1.Pod) bool { return !isLeaving(pod) })
}

// evict releases a claim whose device the scheduler has allocated to another claim, if the claim has no allocation and
// no pods in the API server, because its pods were force-deleted. The kubelet would release the claim a few seconds
// later, after stopping the containers. Until then, the containers run without their interfaces, as after any forced
// deletion.
func (d *draPlugin) evict(record *claims.Record, naming []*corev1.Pod) {
	uid := record.Claim.UID
	if d.Sandboxes.IsReleasing(uid) || len(naming) > 0 || !d.isAbandoned(record) {
		return
	}
	// evict is called once per second for every claim that is waiting for the device.
	if _, begun := d.evicting.LoadOrStore(uid, true); begun {
		return
	}
	begun := d.Sandboxes.GoTracked(func() {
		defer d.evicting.Delete(uid)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Work), unprepareLimit)
		defer cancel()
		logger := klog.FromContext(d.Work).WithValues("claim", record.Claim.String())
		unlock, err := d.locks.Acquire(ctx, uid)
		if err != nil {
			return // the claim is being prepared or released
		}
		defer unlock()
		// Check under the claim's lock, and read from the API server directly. A cache might not contain an allocation
		// yet that Prepare has just acted on.
		allocated, err := d.Cluster.isAllocated(ctx, record)
		if err != nil || allocated {
			logger.V(2).Info("A claim without pods keeps its devices", "allocated", allocated, "err", err)
			return
		}
		if err := d.release(ctx, uid); err != nil {
			logger.Error(err, "Cannot release a claim of pods that were deleted by force; the kubelet also requests it")
			return
		}
		logger.V(2).Info("Released a claim of pods that were deleted by force, because another claim has its devices")
	})
	if !begun {
		d.evicting.Delete(uid)
	}
}

// isAbandoned reports whether none of a claim's known users exist in the API server anymore.
func (d *draPlugin) isAbandoned(record *claims.Record) bool {
	for _, consumer := range record.Consumers {
		if !d.Cluster.podUIDIsGone(consumer.PodUID) {
			return false
		}
	}
	return !slices.ContainsFunc(d.Sandboxes.Users(record.Claim.UID),
		func(pod executor.Pod) bool { return !d.Cluster.podUIDIsGone(pod.UID) })
}

// release returns all of a claim's devices to the host. The caller must hold the claim's lock.
//
// The order matters in case the process terminates partway through. First, release returns the devices and verifies
// that they are back. Then it deletes the record, which frees the devices for other claims. The remaining steps update
// files, which a sweep would repair, and the status of the claim.
func (d *draPlugin) release(ctx context.Context, uid string) error {
	done, err := d.Sandboxes.ReleaseClaim(ctx, uid)
	defer done()
	if err != nil {
		return err
	}
	record, held := d.Claims.Get(uid)
	record.Claim.UID = uid
	if held {
		if err := d.Executor.VerifyReturned(record.Plans); err != nil {
			return err
		}
	}
	d.Health.Released(record.Devices) // first, so as not to discard messages for the next claim
	if err := d.Claims.Release(uid); err != nil {
		return err
	}
	if hasExternal(&record) {
		if err := d.External.Sync(uid); err != nil {
			return err
		}
	}
	// As long as the record existed, a disconnected driver only suspended the gate.
	if err := d.Sandboxes.SyncGate(uid); err != nil {
		return err
	}
	d.Statuses.Clear(&record)
	d.Publisher.Trigger()
	return nil
}
