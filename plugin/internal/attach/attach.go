package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// SlowRemedy is the remedy in errors from calls that have to wait for other calls.
const SlowRemedy = "it will be retried; netdra trace on the node shows which CNI plugin is slow"

const (
	// Budget is how long RunPodSandbox waits for the chain at most. During this time, the runtime holds a node-wide
	// lock, and by default it gives up on the plugin after 2 s. A slower chain continues in the background while the
	// gate stays closed.
	Budget = 300 * time.Millisecond
	// maxSlow limits the number of slow chains: once this many chains are slow, RunPodSandbox no longer waits for new
	// ones.
	maxSlow = 2
	// maxChains is the maximum number of chains that may start concurrently. Chains contend for rtnl, the kernel's lock
	// for link changes: measurements with one to eight concurrent moves showed that more concurrency does not increase
	// the throughput. Instead, each chain takes longer, so more of them exceed Budget.
	maxChains = 8
	// maxTopology is the maximum number of concurrent chains for one topology: half of maxChains, so that a hanging
	// plugin cannot occupy the slots that other topologies need.
	maxTopology = maxChains / 2
	// chainTurn is how long a running chain counts toward maxChains.
	chainTurn = 5 * time.Second
	// attachTimeout limits a single attempt to attach, measured from when its chain is allowed to run. It allows for
	// three plugin calls that each take their full limit (executor.Options.StepTimeout, 30 s). Healthy chains take less
	// than a second. If a chain exceeds this limit, its plugins are considered hung: the chain is rolled back, and an
	// event informs the pod's owner.
	attachTimeout = 90 * time.Second
	// Retry is the delay before a chain that failed in the background is retried; it doubles up to retryMax.
	Retry    = 10 * time.Second
	retryMax = 5 * time.Minute
)

// Attach runs the chains of a sandbox's claims. It returns when they are complete, when they have failed and have been
// rolled back, or when they take too long. In the last case, the work continues in the background, and the containers
// are held back until it is complete. A second call for the same sandbox joins the first.
//
// A nil error means that the sandbox is ready or that the work continues in the background. In both cases, the runtime
// continues with the pod. The gate, not this result, prevents containers from starting too early.
func (s *Sandboxes) Attach(
	ctx context.Context, id string, pod executor.Pod, netns string, records []claims.Record,
) error {
	budget := s.Budget(ctx)
	box, isNew, err := s.begin(id, pod, netns, records)
	if err != nil {
		s.noteEnded(id, pod, records, err)
		var inUse *claimspec.InUseError
		if errors.As(err, &inUse) {
			s.Observer.AttachFailed(pod, records, err, 0)
		}
		return err
	}
	if err := s.syncGates(claimUIDs(records)); err != nil { // gates from an older sandbox of the pod
		if isNew {
			s.forget(box) // nothing has been started for it
			s.noteEnded(id, pod, records, err)
		}
		return err
	}
	// The loop outlives ctx, because the chain may still be running when this call returns.
	if isNew && !s.GoTracked(func() { s.attachLoop(box, netns, records) }) {
		s.forget(box)
		return errStopped
	}
	timer := s.Clock.NewTimer(budget)
	defer timer.Stop()
	select {
	case <-box.answer:
	case <-ctx.Done():
	case <-timer.C():
	}
	// The result may have arrived just after the timer expired. Only stopWaiting, which holds the lock, decides whether
	// the failure is returned or the chain is retried.
	return box.stopWaiting()
}

// Budget returns how long a call may keep the runtime waiting.
func (s *Sandboxes) Budget(ctx context.Context) time.Duration {
	slow := 0
	for _, box := range s.list() {
		if now := box.view(); now.background && now.running {
			slow++
		}
	}
	if slow >= maxSlow {
		return 0
	}
	if deadline, ok := ctx.Deadline(); ok {
		// The rest of the time is reserved for rolling back a failed chain and sending the response: containerd
		// disconnects a plugin that misses the deadline.
		return min(Budget, time.Until(deadline)*6/10)
	}
	return Budget
}

// AttachAfterResync attaches a sandbox that started while the driver was down. The call does not wait, so all failures
// are retried in the background.
func (s *Sandboxes) AttachAfterResync(id string, pod executor.Pod, netns string, records []claims.Record) error {
	box, err := s.beginUnsynced(id, pod, netns, records)
	if err != nil {
		return err
	}
	_ = box.stopWaiting() // no caller waits for the result
	if !s.GoTracked(func() { s.attachLoop(box, netns, records) }) {
		s.forget(box)
	}
	return nil
}

// attachLoop attaches a sandbox and retries failures for as long as the sandbox exists. While RunPodSandbox is still
// waiting, attachLoop passes the failure to it instead of retrying.
func (s *Sandboxes) attachLoop(box *sandbox, netns string, records []claims.Record) {
	// On shutdown, the driver lets a running chain finish, since an interrupted ADD would have to be rolled back. Only
	// a detach cancels this context, by calling stop.
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Work))
	defer cancel()
	box.setStop(cancel)
	logger := s.logger(box)
	for delay := Retry; ; delay = min(2*delay, retryMax) {
		start := s.Clock.Now()
		err := s.attachOnce(ctx, box, netns, records)
		telemetry.Observe(s.Metrics, s.Clock.Since(start), err, "attach")
		if err == nil {
			logger.V(2).Info("Attached the pod", "duration", s.Clock.Since(start).Round(time.Millisecond))
			if box.view().background {
				s.Observer.AttachedLate(box.pod, records)
			}
			return
		}
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			return // the caller that stops the sandbox also rolls it back
		}
		logger.Error(err, "Cannot attach the pod", "duration", s.Clock.Since(start).Round(time.Millisecond))
		// If RunPodSandbox is still waiting, it returns the failure and the runtime removes the sandbox. After that,
		// nothing may be attached to the sandbox.
		if box.reportFailure(err) {
			s.Observer.AttachFailed(box.pod, records, err, 0)
			s.noteEnded(box.id, box.pod, records, err)
			s.detachUntilDone(box) // removes the sandbox, or keeps rolling back the remaining steps
			return
		}
		s.Observer.AttachFailed(box.pod, records, err, delay)
		select {
		case <-ctx.Done():
			return
		case <-s.Work.Done():
			return
		case <-s.Clock.After(delay):
		}
	}
}

// attachOnce makes a single attempt: it waits for its turn, rolls back the steps left over from an earlier attempt,
// runs the chain and opens the gates. If it returns an error, either nothing is attached, or the journal still contains
// the remaining steps, which the next attempt or a detach rolls back.
func (s *Sandboxes) attachOnce(ctx context.Context, box *sandbox, netns string, records []claims.Record) error {
	// Do this before calling enter: the older sandbox's devices must be back on the host before Add looks for them, and
	// the rollback may take a long time.
	if err := s.detachOlder(ctx, box); err != nil {
		return err
	}
	leave, err := s.enter(ctx, box, records)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := box.acquire(ctx); err != nil {
		return err
	}
	defer box.release()
	// If a detach was requested during the wait, it has closed the gates and is now waiting for the slot.
	if box.view().phase.isEnding() {
		return errStopped
	}
	if box.attachment.Phase == executor.PhaseDetaching {
		// Do not forget steps that an earlier attempt could not roll back.
		if err := s.Executor.Del(ctx, box.attachment); err != nil {
			return err
		}
	}
	// Each attempt uses a new record with its own pin: the steps in the previous record have been rolled back, and a
	// plugin that uses the namespace path as the key of its state treats the new path as a different pod.
	routes := box.attachment.DefaultRoutes
	box.attachment = s.newAttachment(box.id, box.pod, records)
	box.attachment.DefaultRoutes = routes
	box.set(func(b *boxState) { b.pin = box.attachment.Pin })
	if err := s.Executor.Add(ctx, box.attachment, netns, s.Node); err != nil {
		return err
	}
	return s.becomeReady(box, records)
}

// enter waits until a chain is allowed to run and returns a function that releases the chain's slots. A chain occupies
// one of its topology's slots for as long as it runs, but one of the node's slots only for chainTurn, so a hanging
// plugin delays only chains of its own topology.
func (s *Sandboxes) enter(ctx context.Context, box *sandbox, records []claims.Record) (leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Work, cancel)() // on shutdown, running work is finished but no new work is started
	var places []func()                       // each releases one slot
	leave = func() {
		for _, giveBack := range places {
			giveBack()
		}
	}
	for _, topology := range topologies(records) { // sorted, so that two chains cannot deadlock
		done, err := s.byTopology.Acquire(ctx, topology)
		if err != nil {
			leave()
			return nil, fmt.Errorf("cannot run the chain of topology %s: %d others of this topology are running: "+
				"%w; %s", topology, maxTopology, err, SlowRemedy)
		}
		places = append(places, done)
	}
	select {
	case s.chains <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("cannot run the chain: %d others have just started: %w", maxChains, ctx.Err())
	}
	box.set(func(b *boxState) { b.running = true })
	// Both the timer and the end of the chain release the slot. A second release would free a slot that another chain
	// holds.
	release := sync.OnceFunc(func() {
		box.set(func(b *boxState) { b.running = false })
		<-s.chains
	})
	timer := s.Clock.AfterFunc(chainTurn, release)
	places = append(places, func() { timer.Stop(); release() })
	return leave, nil
}

func topologies(records []claims.Record) []string {
	names := sets.New[string]()
	for i := range records {
		for j := range records[i].Plans {
			names.Insert(records[i].Plans[j].Topology)
		}
	}
	return sets.List(names)
}

func claimUIDs(records []claims.Record) []string {
	uids := make([]string, len(records))
	for i := range records {
		uids[i] = records[i].Claim.UID
	}
	return uids
}

// becomeReady opens the gates before RunPodSandbox returns. If that fails, it rolls back the chain.
//
// The phase changes before the gates: SyncGate reads the current phase and opens the gates of attached sandboxes. A
// concurrent detach closes them again, since it changes the phase before it calls SyncGate.
func (s *Sandboxes) becomeReady(box *sandbox, records []claims.Record) error {
	uids := claimUIDs(records)
	if !box.markOpening(box.attachment) {
		return errStopped
	}
	// Use a separate context: the chain may have used up most of attachTimeout, and the rollback needs time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Work), DetachTimeout)
	defer cancel()
	s.Observer.DescribeClaims(ctx, records)
	if err := s.syncGates(uids); err != nil {
		// Reset the phase first, so that the second SyncGate closes the gates that the first one opened.
		box.resumeAttaching()
		return errors.Join(err, s.syncGates(uids), s.Executor.Del(ctx, box.attachment))
	}
	box.markReady()
	s.Observer.Attached(records)
	return nil
}
