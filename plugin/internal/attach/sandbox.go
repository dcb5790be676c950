package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

type sandbox struct {
	id    string
	pod   executor.Pod
	since time.Time // time of the first attempt to attach
	seq   uint64    // orders sandboxes; sandboxes from an earlier driver process come first
	boot  string    // ID of the boot in which the sandbox was created

	// slot is held by the goroutine that runs the executor. It guards attachment, which the executor changes.
	slot       chan struct{}
	attachment *executor.Attachment

	mu sync.Mutex // guards all fields below; never held during I/O
	boxState
	stop       context.CancelFunc // cancels the attach
	answer     chan struct{}      // closed when the result for RunPodSandbox is available
	detachDone chan struct{}      // non-nil while the sandbox is being rolled back in the background; closed when done
}

// boxState is the state of a sandbox. Its methods are defined on view, so that they cannot be called without taking the
// lock.
type boxState struct {
	pin string // pin of the attachment's network namespace
	// claims contains the claims that may have attached steps. The value is true if the claim should be attached and
	// false if it is being detached.
	claims   map[string]bool
	phase    phase
	attached []executor.StepRecord // a copy of the steps while they are attached
	netns    string                // the runtime's path
	netNSID  string                // identity of netns when everything was attached; see executor.Attachment
	// superseded is true if the pod has a newer sandbox.
	superseded bool
	// missing contains, by step index, the attached interfaces that are no longer in the pod according to the kernel.
	missing map[int]string
	// undescribed is true if the RDMA devices in attached differ from those described in the claims' files.
	undescribed bool
	running     bool  // a chain is running and started less than chainTurn ago
	background  bool  // RunPodSandbox has returned or does not wait; failures are retried in the background
	failure     error // error from the last attempt
	// last is the pod's previous sandbox if it could not be attached. Its failure is reported until this sandbox is
	// attached.
	last *nodestate.Sandbox
	// endingSince is the time when the rollback of the sandbox was requested; it is zero if no rollback was requested.
	endingSince time.Time
	// detachFailure is the error from the last attempt to roll back steps; it is nil if that attempt succeeded.
	detachFailure error
}

// view is a copy of the state of a sandbox. It is consistent: all fields were read under one lock.
type view boxState

func (b *sandbox) view() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := view(b.boxState)
	now.claims = maps.Clone(b.claims) // other maps and slices are replaced rather than modified
	return now
}

func (b *sandbox) set(change func(*boxState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.boxState)
}

var errStopped = errors.New("the sandbox is being stopped")

// newSandbox returns a sandbox in phaseAttaching, with the claims from the attachment's steps. If any step of a claim
// is being rolled back, the claim is marked as leaving even if other steps are attached: a crash has interrupted the
// claim's release, and the kubelet will request the release again.
func newSandbox(id string, pod executor.Pod, attachment *executor.Attachment) *sandbox {
	box := &sandbox{
		id: id, pod: pod, since: attachment.CreatedAt, boot: attachment.BootID, attachment: attachment,
		slot: make(chan struct{}, 1), answer: make(chan struct{}), stop: func() {},
		boxState: boxState{pin: attachment.Pin, netns: attachment.NetNS, claims: map[string]bool{}},
	}
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		switch record.Phase {
		case executor.StepDeleted:
		case executor.StepDeleting:
			box.claims[record.Claim.UID] = false
		case executor.StepPlanned, executor.StepAdding, executor.StepAdded:
			if _, leaving := box.claims[record.Claim.UID]; !leaving {
				box.claims[record.Claim.UID] = true
			}
		}
	}
	return box
}

// recovered returns the sandbox for an attachment from an earlier driver process. A sandbox that was ready in this boot
// stays ready, but its containers cannot start until the runtime confirms the sandbox.
//
// All other sandboxes start in phaseDetaching, which keeps their gates closed during the rollback.
func recovered(attachment *executor.Attachment, bootID string) *sandbox {
	box := newSandbox(attachment.SandboxID, attachment.Pod, attachment)
	box.background, box.phase = true, phaseDetaching
	close(box.answer)
	if attachment.Phase == executor.PhaseReady && attachment.BootID == bootID {
		box.phase, box.attached, box.netNSID = phaseReady, slices.Clone(attachment.Steps), attachment.NetNSID
	}
	return box
}

// acquire waits for the slot. If it succeeds, the caller must call release when it no longer needs the slot.
func (b *sandbox) acquire(ctx context.Context) error {
	select {
	case b.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pod %s is still being attached or detached: %w", b.pod, ctx.Err())
	}
}

func (b *sandbox) release() { <-b.slot }

// uses reports whether steps of a claim may be attached.
func (v view) uses(claimUID string) bool {
	_, uses := v.claims[claimUID]
	return uses
}

// steps returns the sandbox's attached steps if the claim is attached to it, otherwise nil.
func (v view) steps(claimUID string) []executor.StepRecord {
	if v.phase.isAttached() && v.claims[claimUID] {
		return v.attached
	}
	return nil
}

// noteDetached records the result of an attempt to roll back steps, and reports whether it is a new failure.
func (b *sandbox) noteDetached(err error) (isNews bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	isNews = err != nil && (b.detachFailure == nil || b.detachFailure.Error() != err.Error())
	b.detachFailure = err
	return isNews
}

// stopWaiting returns the result for RunPodSandbox. After this call, failures are retried in the background.
//
// stopWaiting and reportFailure decide under the same lock: either RunPodSandbox returns the failure, or the chain is
// retried. Both must never happen, since a runtime that receives an error removes the sandbox.
func (b *sandbox) stopWaiting() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.answer:
		return b.failure
	default:
		b.background = true
		return nil
	}
}

func (v view) attachedClaims() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v.claims)), func(uid string) bool { return !v.claims[uid] })
}

func (v view) missingNames() []string {
	var names []string
	for uid := range v.claims {
		names = slices.AppendSeq(names, maps.Values(v.missingOf(uid)))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// admits returns the steps of the sandbox and the pin of the namespace where a claim's containers may start. The caller
// must check that the sandbox still exists in the runtime. The pin is empty if no container may start.
func (v view) admits(claimUID string) (steps []executor.StepRecord, pin string) {
	if steps = v.steps(claimUID); steps == nil || v.superseded {
		return nil, ""
	}
	return steps, v.pin
}

// setMissing records the interfaces that are missing from the pod and reports whether the set has changed: every sweep
// inspects the pod, but the pod's owner must get only one event. During a detach, missing interfaces are expected.
func (b *sandbox) setMissing(missing map[int]string) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.phase.isAttached() || maps.Equal(b.missing, missing) {
		return false
	}
	b.missing = missing
	return true
}

func (v view) missingOf(claimUID string) map[int]string {
	missing := map[int]string{}
	for index, name := range v.missing {
		if v.phase.isAttached() && v.claims[claimUID] && v.attached[index].Claim.UID == claimUID {
			missing[index] = name
		}
	}
	return missing
}

// setStop sets the function that cancels the attach. It calls the function immediately if the sandbox is already being
// rolled back, because markReleasing may have run before the loop created its context and will not run again.
func (b *sandbox) setStop(stop context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = stop
	if b.phase.isEnding() {
		stop()
	}
}

// markOpening records that the steps of an attachment are complete, so that gates may open. It returns false if the
// sandbox is already being detached. It copies the steps, because gates are computed from them without holding the
// slot, and a detach that holds the slot may change the attachment concurrently.
//
// It clears the failure from an earlier attempt, so that an attached sandbox never reports a failure.
func (b *sandbox) markOpening(attachment *executor.Attachment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.changePhase(phaseOpening) {
		return false
	}
	b.failure, b.attached = nil, slices.Clone(attachment.Steps)
	b.netns, b.netNSID = attachment.NetNS, attachment.NetNSID
	return true
}

func (b *sandbox) resumeAttaching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changePhase(phaseAttaching)
}

// markReady records that the gates are open and lets RunPodSandbox return. If the sandbox is already being detached,
// its phase does not change.
func (b *sandbox) markReady() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changePhase(phaseReady)
	b.answerLocked()
}

func (b *sandbox) answerLocked() {
	select {
	case <-b.answer:
	default:
		close(b.answer)
	}
}

// reportFailure passes a failure to RunPodSandbox if that call is still waiting, and reports whether it did. If so, the
// runtime stops the sandbox, and no further attempts follow.
func (b *sandbox) reportFailure(err error) (reported bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = err
	if b.background {
		return false
	}
	b.changePhase(phaseDetaching)
	b.answerLocked()
	return true
}

// markReleasing prevents claims from being attached, and returns the claims that must be detached. A sandbox that is
// not ready yet is stopped and detached as a whole, since its next attempt would attach the claims again. The same
// applies if no other claim uses the sandbox.
//
// For example, suppose that a pod has claims a and b. Releasing a leaves b attached, with its gate open. When b, now
// the only user, is released as well, the whole sandbox is detached: in addition to rolling back the steps of b, the
// driver removes the sandbox's record and pin.
func (b *sandbox) markReleasing(claimUIDs []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	users := 0
	for uid, wanted := range b.claims {
		if wanted && !slices.Contains(claimUIDs, uid) {
			users++
		}
	}
	if b.phase != phaseReady || len(claimUIDs) == 0 || users == 0 {
		claimUIDs = slices.Sorted(maps.Keys(b.claims))
		b.changePhase(phaseDetaching)
		// Calling stop under the lock is safe, as in setStop: a cancel function only closes a channel and acquires no
		// locks of this package.
		b.stop()
	}
	for _, uid := range claimUIDs {
		if b.claims[uid] {
			b.claims[uid] = false
		}
	}
	return claimUIDs
}

// removeClaims records that the claims have been detached and reports whether the sandbox has no claims left.
//
// If none are left, it also unblocks a RunPodSandbox call that is still waiting for this sandbox.
func (b *sandbox) removeClaims(claimUIDs []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range claimUIDs {
		delete(b.claims, uid)
	}
	if len(b.claims) > 0 {
		return false
	}
	b.changePhase(phaseGone)
	b.answerLocked()
	return true
}
