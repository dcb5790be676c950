package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

const (
	// DetachTimeout limits a single attempt to detach. It allows for two plugin calls that each take their full default
	// limit of 30 s. The next attempt continues with the remaining steps.
	DetachTimeout = 60 * time.Second
	// A failed detach is retried after detachRetry; the delay doubles up to detachRetryMax.
	detachRetry    = time.Second
	detachRetryMax = time.Minute
)

// detach rolls back a sandbox or, if claimUIDs is not empty, only the steps for those claims. It returns when the
// rollback is complete or has failed.
//
// It closes gates first, even before it waits for the slot: no container may start with interfaces that are about to be
// removed.
func (s *Sandboxes) detach(ctx context.Context, box *sandbox, claimUIDs ...string) error {
	leaving := box.markReleasing(claimUIDs)
	box.set(func(b *boxState) {
		if b.phase.isEnding() && b.endingSince.IsZero() {
			b.endingSince = s.Clock.Now()
		}
	})
	if err := s.syncGates(leaving); err != nil {
		s.tellDetached(box, err)
		return err
	}
	if err := box.acquire(ctx); err != nil {
		return err
	}
	defer box.release()
	if s.find(box.id) != box {
		return nil // rolled back before or during the wait; its devices and its ID may now belong to another sandbox
	}
	// If no claims are passed, Del rolls back the whole attachment, including the steps for claims that the caller did
	// not name: an interrupted chain is rolled back as a whole.
	wanted := leaving
	if box.view().phase.isEnding() {
		wanted = nil // the whole attachment
	}
	err := s.Executor.Del(ctx, box.attachment, wanted...)
	s.tellDetached(box, err) // an attempt that did not acquire the slot has nothing to report
	if err != nil {
		return err
	}
	// Mark the claims again: other claims of the sandbox may have been marked in the meantime, and all of them have now
	// been rolled back.
	if wanted == nil {
		leaving = box.markReleasing(nil)
	}
	if box.removeClaims(leaving) {
		s.forget(box)
	}
	return nil
}

// tellDetached records the result of an attempt to detach a sandbox or some of its claims, and reports a new failure to
// the pod.
func (s *Sandboxes) tellDetached(box *sandbox, err error) {
	if box.noteDetached(err) {
		s.Observer.DetachFailed(box.pod, err)
	}
}

// detachOlder rolls back older sandboxes of the same pod: the runtime has stopped them, and their stop events may have
// been lost. Since it is part of an attempt to attach and there may be several older sandboxes, it is limited by
// attachTimeout rather than DetachTimeout.
func (s *Sandboxes) detachOlder(ctx context.Context, box *sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	for _, other := range s.list() {
		if other.seq < box.seq && other.pod.UID == box.pod.UID {
			if err := s.detach(ctx, other); err != nil {
				return fmt.Errorf("cannot undo the older sandbox %s of the pod: %w", other.id, err)
			}
		}
	}
	return nil
}

// detachUntilDone rolls back a sandbox in the background, with retries, and closes the returned channel when it is
// done.
//
// Only one such loop runs for each sandbox, although several events may request it: the stop or removal of the sandbox,
// a sweep, and a failed chain.
func (s *Sandboxes) detachUntilDone(box *sandbox) <-chan struct{} {
	box.mu.Lock()
	if box.detachDone != nil {
		defer box.mu.Unlock()
		return box.detachDone
	}
	done := make(chan struct{})
	box.detachDone = done
	box.mu.Unlock()
	begun := s.GoTracked(func() {
		defer close(done)
		for delay := detachRetry; !s.detachOnce(box, delay); delay = min(2*delay, detachRetryMax) {
			select {
			case <-s.Work.Done():
				return
			case <-s.Clock.After(delay):
			}
		}
	})
	if !begun {
		close(done) // the driver is stopping; the record remains for the next driver process
	}
	return done
}

// detachOnce makes a single attempt and reports whether the sandbox is no longer registered afterwards. delay is the
// time until the caller's next attempt and is only logged.
func (s *Sandboxes) detachOnce(box *sandbox, delay time.Duration) bool {
	if s.find(box.id) != box {
		return true // already rolled back, and the ID may now belong to another sandbox
	}
	// As with chains, the driver lets a running attempt finish on shutdown but does not start a new one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Work), DetachTimeout)
	defer cancel()
	start := s.Clock.Now()
	err := s.detach(ctx, box)
	telemetry.Observe(s.Metrics, s.Clock.Since(start), err, "detach")
	if err != nil {
		s.logger(box).Error(err, "Cannot detach the pod; trying again", "again", delay)
		return false
	}
	s.logger(box).V(2).Info("Detached the pod", "duration", s.Clock.Since(start).Round(time.Millisecond))
	return true
}

// StopSandbox starts detaching a sandbox that the runtime is stopping. The returned channel is closed once the sandbox
// has been detached. StopSandbox returns no error, since no caller could act on it: Unprepare waits until the detach is
// complete.
//
// It also records unknown sandboxes as stopped: such a sandbox may have started while the driver was down and be in the
// list that AttachAfterResync is processing.
func (s *Sandboxes) StopSandbox(id string) <-chan struct{} {
	s.mu.Lock()
	s.stopped.Insert(id)
	s.connection.unsynced.Delete(id)
	box := s.byID[id]
	s.mu.Unlock()
	if box == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.detachUntilDone(box)
}

// RemoveSandbox detaches a sandbox that the runtime is removing. The runtime may report the removal before or instead
// of the stop.
func (s *Sandboxes) RemoveSandbox(id string) {
	s.StopSandbox(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped.Delete(id)
}

// ReleaseClaim detaches a claim from every sandbox and prevents it from being attached again until done is called. The
// caller must call done once the claim's record has been removed or its removal has failed.
//
// The claim remains in the releasing state until its record is removed, not just until its devices are back on the
// host. Otherwise, a sandbox that starts in between could attach devices that the scheduler allocates to another claim
// a moment later. releasing is a counter because releases of the same claim may overlap.
func (s *Sandboxes) ReleaseClaim(ctx context.Context, uid string) (done func(), err error) {
	s.mu.Lock()
	s.releasing[uid]++
	s.mu.Unlock()
	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.releasing[uid]--; s.releasing[uid] == 0 {
			delete(s.releasing, uid)
		}
	}
	problems := []error{s.releaseUnrecorded(uid)}
	for _, box := range s.list() {
		if box.view().uses(uid) {
			if err := s.detach(ctx, box, uid); err != nil {
				problems = append(problems, fmt.Errorf("pod %s: %w", box.pod, err))
			}
		}
	}
	problems = append(problems, s.SyncGate(uid))
	return done, errors.Join(problems...)
}

// IsReleasing reports whether a claim is being released.
func (s *Sandboxes) IsReleasing(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasing[uid] > 0
}
