package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// detachOlder undoes older sandboxes of the pod that hold claims of this one: the runtime has ended them, and their stop
// event may have been lost.
func (s *sandboxes) detachOlder(ctx context.Context, box *sandbox) error {
	for _, other := range s.list() {
		if other.id != box.id && other.pod.UID == box.pod.UID {
			if err := s.detach(ctx, other.id); err != nil {
				return fmt.Errorf("cannot undo the older sandbox %s of the pod: %w", other.id, err)
			}
		}
	}
	return nil
}

// detach undoes a sandbox, or what it has of one claim, and returns when nothing of it is left or an attempt has failed.
func (s *sandboxes) detach(ctx context.Context, id string, claimUIDs ...string) error {
	box := s.find(id)
	if box == nil {
		return nil
	}
	leaving := box.leave(claimUIDs)
	if err := s.closeGates(box, leaving); err != nil {
		return err
	}
	if err := box.take(ctx); err != nil {
		return err
	}
	defer box.give()
	if box.isStopped() {
		leaving = nil // all of them
	}
	if err := s.executor.Del(ctx, box.attachment, leaving...); err != nil {
		return err
	}
	if box.left(leaving) {
		s.forget(box)
	}
	return nil
}

// closeGates closes the gates of claims that will not be attached anywhere any more.
func (s *sandboxes) closeGates(box *sandbox, claimUIDs []string) error {
	var problems []error
	for _, uid := range claimUIDs {
		if !s.attachedElsewhere(uid, box) {
			problems = append(problems, s.gate.close(uid))
		}
	}
	return errors.Join(problems...)
}

// detachUntilDone undoes a sandbox in the background, again and again; the channel is closed at the end.
func (s *sandboxes) detachUntilDone(box *sandbox) <-chan struct{} {
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.detaching != nil {
		return box.detaching
	}
	done := make(chan struct{})
	box.detaching = done
	s.wait.Go(func() {
		defer close(done)
		for delay := detachRetry; !s.detachOnce(box, delay); delay = min(2*delay, detachRetryMax) {
			select {
			case <-s.work.Done():
				return
			case <-s.clock.After(delay):
			}
		}
	})
	return done
}

func (s *sandboxes) detachOnce(box *sandbox, delay time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.work), detachLimit)
	defer cancel()
	start := s.clock.Now()
	logger := klog.FromContext(ctx).WithValues("pod", box.pod.String(), "sandbox", box.id)
	if err := s.detach(ctx, box.id); err != nil {
		logger.Error(err, "Cannot detach yet", "again", delay)
		return false
	}
	logger.V(2).Info("Detached", "duration", s.clock.Since(start).Round(time.Millisecond))
	return true
}

// stopSandbox detaches a sandbox that the runtime stops. It waits a little, and goes on in the background: an error or a
// long wait would help nobody, and Unprepare waits for the end.
func (s *sandboxes) stopSandbox(ctx context.Context, id string) {
	box := s.find(id)
	if box == nil {
		return
	}
	budget := s.clock.NewTimer(attachBudget)
	defer budget.Stop()
	select {
	case <-s.detachUntilDone(box):
	case <-ctx.Done():
	case <-budget.C():
	}
}

// releaseClaim detaches a claim from every sandbox.
func (s *sandboxes) releaseClaim(ctx context.Context, uid string) error {
	var problems []error
	for _, box := range s.list() {
		if box.uses(uid) {
			if err := s.detach(ctx, box.id, uid); err != nil {
				problems = append(problems, fmt.Errorf("pod %s: %w", box.pod, err))
			}
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return s.gate.close(uid)
}
