package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

const (
	// attachBudget is how long RunPodSandbox waits for the chain, at most. The runtime holds a node-wide lock meanwhile
	// and gives up on the plugin after 2 s by default; what takes longer goes on in the background behind the gate.
	attachBudget = 300 * time.Millisecond
	// maxSlow is how many chains may be late before RunPodSandbox waits for no further one.
	maxSlow = 2
	// maxChains is how many chains run at once.
	maxChains = 8
	// attachLimit bounds one attempt to attach.
	attachLimit = 90 * time.Second
	// A chain that fails in the background is tried again after attachRetry, doubled up to attachRetryMax.
	attachRetry    = 10 * time.Second
	attachRetryMax = 5 * time.Minute
)

// attach runs the chains of a sandbox's claims. It returns when that is done, has failed and is undone, or has taken too
// long; then it goes on in the background and containers are held meanwhile. A second call for one sandbox joins the first.
func (s *sandboxes) attach(ctx context.Context, id string, pod cnichain.Pod, netns string, records []ClaimRecord) error {
	budget := s.budget(ctx)
	box, isNew, err := s.begin(id, pod, records)
	if err != nil {
		return err
	}
	if isNew && !s.goTracked(func() { s.attachLoop(box, netns, records) }) {
		s.forget(box)
		return errStopped
	}
	timer := s.clock.NewTimer(budget)
	defer timer.Stop()
	select {
	case <-box.finished:
	case <-ctx.Done():
	case <-timer.C():
	}
	return box.answer()
}

// budget is how long the runtime may be kept waiting.
func (s *sandboxes) budget(ctx context.Context) time.Duration {
	slow := 0
	for _, box := range s.list() {
		if box.slow() {
			slow++
		}
	}
	if slow >= maxSlow {
		return 0
	}
	if deadline, ok := ctx.Deadline(); ok {
		return min(attachBudget, time.Until(deadline)*6/10)
	}
	return attachBudget
}

// attachMissed attaches a sandbox that started while we were away. Nobody waits: failures are tried again from the start.
func (s *sandboxes) attachMissed(id string, pod cnichain.Pod, netns string, records []ClaimRecord) error {
	box, err := s.beginMissed(id, pod, records)
	if err != nil {
		return err
	}
	_ = box.answer() // nobody waits
	if !s.goTracked(func() { s.attachLoop(box, netns, records) }) {
		s.forget(box)
	}
	return nil
}

// attachLoop attaches, and tries again while RunPodSandbox can't be told and the sandbox is there.
func (s *sandboxes) attachLoop(box *sandbox, netns string, records []ClaimRecord) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.work))
	defer cancel()
	box.setStop(cancel)
	logger := s.logger(box)
	for delay := attachRetry; ; delay = min(2*delay, attachRetryMax) {
		start := s.clock.Now()
		err := s.attachOnce(ctx, box, netns, records)
		observe(s.metrics.attachments, s.clock.Since(start), err, "attach")
		if err == nil {
			logger.V(2).Info("Attached", "duration", s.clock.Since(start).Round(time.Millisecond))
			if box.inBackground() {
				s.late(box.pod, records)
			}
			return
		}
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			return // whoever stops it undoes it
		}
		logger.Error(err, "Cannot attach", "duration", s.clock.Since(start).Round(time.Millisecond))
		if box.tell(err) {
			s.failed(box.pod, records, err, 0)
			s.detachUntilDone(box) // forget it, or go on undoing what could not be undone
			return
		}
		s.failed(box.pod, records, err, delay)
		select {
		case <-ctx.Done():
			return
		case <-s.work.Done():
			return
		case <-s.clock.After(delay):
		}
	}
}

func (s *sandboxes) attachOnce(ctx context.Context, box *sandbox, netns string, records []ClaimRecord) error {
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	box.setRunning(true)
	defer box.setRunning(false)
	select {
	case s.chains <- struct{}{}:
		defer func() { <-s.chains }()
	case <-ctx.Done():
		return fmt.Errorf("%d other chains take too long: %w; %s", maxChains, ctx.Err(), whatIsSlow)
	}
	if err := s.detachOlder(ctx, box); err != nil {
		return err
	}
	if err := box.take(ctx); err != nil {
		return err
	}
	defer box.give()
	if box.isStopped() {
		return errStopped
	}
	if box.attachment.Phase == cnichain.PhaseDetaching {
		// What an earlier attempt could not undo must not be forgotten.
		if err := s.executor.Del(ctx, box.attachment); err != nil {
			return err
		}
	}
	box.begin(s.newAttachment(box.id, box.pod, records))
	if err := s.executor.Add(ctx, box.attachment, netns, s.node); err != nil {
		return err
	}
	return s.becomeReady(ctx, box, records)
}

// becomeReady opens the gates and only then lets RunPodSandbox return. Its own failures are undone.
func (s *sandboxes) becomeReady(ctx context.Context, box *sandbox, records []ClaimRecord) error {
	uids := make([]string, len(records))
	for i := range records {
		uids[i] = records[i].Claim.UID
	}
	if !box.setReady(box.attachment) {
		return errStopped
	}
	ctx = context.WithoutCancel(ctx)
	s.describe(ctx, records)
	if err := s.syncGates(ctx, uids); err != nil {
		box.notReady()
		return errors.Join(err, s.syncGates(ctx, uids), s.executor.Del(ctx, box.attachment))
	}
	box.finish()
	for _, uid := range uids {
		s.changed(uid)
	}
	return nil
}
