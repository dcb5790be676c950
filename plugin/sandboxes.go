package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

const (
	// attachBudget is how long RunPodSandbox waits for the chain. The runtime holds a node-wide lock meanwhile and gives
	// up on the plugin after 2 s by default; what takes longer goes on in the background behind the gate.
	attachBudget = 1200 * time.Millisecond
	// attachLimit bounds one attempt to attach.
	attachLimit = 90 * time.Second
	// detachLimit bounds one attempt to detach.
	detachLimit = 60 * time.Second
	// unprepareLimit is what Unprepare waits; kubelet gives up after 45 s.
	unprepareLimit = 35 * time.Second
	// A chain that fails in the background is tried again after attachRetry, doubled up to attachRetryMax.
	attachRetry    = 10 * time.Second
	attachRetryMax = 5 * time.Minute
	// A detach that fails is tried again after detachRetry, doubled up to detachRetryMax.
	detachRetry    = time.Second
	detachRetryMax = time.Minute
)

// sandboxes keeps what is attached. It is safe for concurrent use.
type sandboxes struct {
	executor *cnichain.Executor
	claims   *claims
	gate     gate
	// changed is told the claims whose status may be different; failed about an attempt that failed.
	changed func(claimUID string)
	failed  func(pod cnichain.Pod, claims []ClaimRecord, err error, again time.Duration)
	node    string
	bootID  string
	pinDir  string
	clock   clock.Clock
	// work ends when the driver stops: then nothing is tried again. What runs is finished.
	work context.Context
	wait sync.WaitGroup

	mu   sync.Mutex
	byID map[string]*sandbox
}

// attachmentJournal is the executor's journal.
type attachmentJournal struct {
	bucket *journal.Bucket[cnichain.Attachment]
}

func (j attachmentJournal) Save(attachment *cnichain.Attachment) error {
	return j.bucket.Put(attachment.SandboxID, *attachment)
}

func (j attachmentJournal) Delete(sandboxID string) error { return j.bucket.Delete(sandboxID) }

// recover takes over what an earlier driver left: what was ready at this boot stays, everything else is undone in the
// background.
func (s *sandboxes) recover(attachments map[string]cnichain.Attachment) {
	for _, id := range sortedKeys(attachments) {
		attachment := attachments[id]
		box := newSandbox(id, attachment.Pod, &attachment)
		box.background = true
		close(box.finished)
		if attachment.Phase == cnichain.PhaseReady && attachment.BootID == s.bootID {
			box.ready, box.attached = true, slices.Clone(attachment.Steps)
		}
		box.stopped = !box.ready
		s.mu.Lock()
		s.byID[id] = box
		s.mu.Unlock()
		if box.stopped {
			s.detachUntilDone(box)
		}
	}
}

// openGates returns the claims that are attached somewhere.
func (s *sandboxes) openGates() map[string]bool {
	open := map[string]bool{}
	for _, record := range s.claims.all() {
		if s.attached(record.Claim.UID) {
			open[record.Claim.UID] = true
		}
	}
	return open
}

// attach runs the chains of a sandbox's claims. It returns when that is done, has failed and is undone, or has taken
// attachBudget; then it goes on in the background and containers are held meanwhile. A second call for one sandbox
// joins the first.
func (s *sandboxes) attach(ctx context.Context, id string, pod cnichain.Pod, netns string, records []ClaimRecord) error {
	box, isNew, err := s.begin(id, pod, records)
	if err != nil {
		return err
	}
	if isNew {
		s.wait.Go(func() { s.attachLoop(box, netns, records) })
	}
	budget := s.clock.NewTimer(attachBudget)
	defer budget.Stop()
	select {
	case <-box.finished:
	case <-ctx.Done():
	case <-budget.C():
	}
	return box.answer()
}

// attachLater is attach for a sandbox that the runtime does not wait for: failures are tried again from the start.
func (s *sandboxes) attachLater(id string, pod cnichain.Pod, netns string, records []ClaimRecord) error {
	box, isNew, err := s.begin(id, pod, records)
	if err != nil || !isNew {
		return err
	}
	_ = box.answer() // nobody waits
	s.wait.Go(func() { s.attachLoop(box, netns, records) })
	return nil
}

// begin registers a sandbox, or finds it. Devices that another pod's sandbox holds exclusively are refused here; an older
// sandbox of the same pod is undone first by the attaching itself.
func (s *sandboxes) begin(id string, pod cnichain.Pod, records []ClaimRecord) (*sandbox, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if box, known := s.byID[id]; known {
		return box, false, nil
	}
	for _, other := range s.byID {
		for i := range records {
			if other.pod.UID != pod.UID && exclusive(&records[i]) && other.uses(records[i].Claim.UID) {
				return nil, false, fmt.Errorf("claim %s has an exclusive device that pod %s holds: a second pod must wait or use a claim of its own", records[i].Claim, other.pod)
			}
		}
	}
	box := newSandbox(id, pod, s.newAttachment(id, pod, records))
	s.byID[id] = box
	return box, true, nil
}

func (s *sandboxes) newAttachment(id string, pod cnichain.Pod, records []ClaimRecord) *cnichain.Attachment {
	plans := make([]cnichain.Plan, 0, len(records))
	for _, record := range records {
		plans = append(plans, record.Plans...)
	}
	attachment := cnichain.NewAttachment(id, pod, plans)
	attachment.BootID, attachment.CreatedAt = s.bootID, s.clock.Now()
	attachment.Pin = filepath.Join(s.pinDir, "dra-"+id[:min(len(id), 32)])
	return attachment
}

func exclusive(record *ClaimRecord) bool {
	for _, device := range record.Devices {
		if device.Exclusive {
			return true
		}
	}
	return false
}

// attachLoop attaches, and tries again while RunPodSandbox can't be told and the sandbox is there.
func (s *sandboxes) attachLoop(box *sandbox, netns string, records []ClaimRecord) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.work))
	defer cancel()
	box.mu.Lock()
	box.stop = cancel
	box.mu.Unlock()
	logger := klog.FromContext(ctx).WithValues("pod", box.pod.String(), "sandbox", box.id)
	for delay := attachRetry; ; delay = min(2*delay, attachRetryMax) {
		start := s.clock.Now()
		err := s.attachOnce(ctx, box, netns, records)
		if err == nil {
			logger.V(2).Info("Attached", "duration", s.clock.Since(start).Round(time.Millisecond))
			return
		}
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			return
		}
		logger.Error(err, "Cannot attach", "duration", s.clock.Since(start).Round(time.Millisecond))
		if told := s.giveUp(box, err); told {
			s.failed(box.pod, records, err, 0)
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
	attachment := s.newAttachment(box.id, box.pod, records)
	box.attachment = attachment
	if err := s.executor.Add(ctx, attachment, netns, s.node); err != nil {
		return err
	}
	for i := range records {
		if err := s.gate.open(records[i].Claim.UID); err != nil {
			return errors.Join(err, s.executor.Del(context.WithoutCancel(ctx), attachment))
		}
	}
	if !box.succeed(attachment) {
		return errStopped // whoever stops it waits for the turn
	}
	for i := range records {
		s.changed(records[i].Claim.UID)
	}
	return nil
}

// giveUp hands a failure to RunPodSandbox if it still waits: the runtime then ends the sandbox and kubelet makes another.
func (s *sandboxes) giveUp(box *sandbox, err error) bool {
	box.mu.Lock()
	box.failure = err
	if box.background {
		box.mu.Unlock()
		return false
	}
	box.stopped = true
	box.finish()
	box.mu.Unlock()
	// Forget it, or go on undoing what could not be undone.
	s.detachUntilDone(box)
	return true
}

// state says whether a sandbox is known, whether it is attached, and why not.
func (s *sandboxes) state(id string) (known, ready bool, failure error) {
	box := s.find(id)
	if box == nil {
		return false, false, nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	return true, box.ready, box.failure
}

// settled waits until a sandbox that is being undone is gone.
func (s *sandboxes) settled(ctx context.Context, id string) {
	box := s.find(id)
	if box == nil {
		return
	}
	box.mu.Lock()
	detaching := box.detaching
	box.mu.Unlock()
	if detaching == nil {
		return
	}
	select {
	case <-detaching:
	case <-ctx.Done():
	}
}

// attached says whether any ready sandbox has the claim.
func (s *sandboxes) attached(claimUID string) bool { return s.attachedElsewhere(claimUID, nil) }

func (s *sandboxes) attachedElsewhere(claimUID string, but *sandbox) bool {
	for _, box := range s.list() {
		if box == but {
			continue
		}
		box.mu.Lock()
		ready := box.ready && box.claims[claimUID]
		box.mu.Unlock()
		if ready {
			return true
		}
	}
	return false
}

// attachedSteps returns the steps, with their results, of the first ready sandbox that has the claim.
func (s *sandboxes) attachedSteps(claimUID string) []cnichain.StepRecord {
	for _, box := range s.list() {
		box.mu.Lock()
		steps := box.attached
		ready := box.ready && box.claims[claimUID]
		box.mu.Unlock()
		if ready {
			return steps
		}
	}
	return nil
}

func (s *sandboxes) find(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *sandboxes) forget(box *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[box.id] == box {
		delete(s.byID, box.id)
	}
}

func (s *sandboxes) list() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	boxes := make([]*sandbox, 0, len(s.byID))
	for _, id := range sortedKeys(s.byID) {
		boxes = append(boxes, s.byID[id])
	}
	return boxes
}
