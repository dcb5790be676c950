package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// sandbox is one pod sandbox with claims of ours.
type sandbox struct {
	id    string
	pod   cnichain.Pod
	since time.Time // of the first attempt to attach
	born  uint64    // orders sandboxes; those of an earlier driver are the oldest

	// turn is taken by whoever runs the executor, and with it the attachment, which the executor changes.
	turn       chan struct{}
	attachment *cnichain.Attachment

	mu  sync.Mutex // guards the rest; never held over I/O
	pin string     // of the network namespace: that of the attachment
	// claims are those of which something may be attached: true for one that is wanted, false for one that is leaving.
	claims     map[string]bool
	attached   []cnichain.StepRecord // a copy of the steps, while ready
	netns      string                // the runtime's path, while ready
	stop       context.CancelFunc    // ends the attaching
	ready      bool
	running    bool // an attempt to attach is being made
	background bool // RunPodSandbox has returned; failures are retried here
	stopped    bool
	failure    error
	finished   chan struct{} // closed when RunPodSandbox has its answer
	detaching  chan struct{} // not nil while it is being undone in the background; closed at the end
}

var errStopped = errors.New("the sandbox is being stopped")

func newSandbox(id string, pod cnichain.Pod, attachment *cnichain.Attachment) *sandbox {
	box := &sandbox{
		id: id, pod: pod, since: attachment.CreatedAt, pin: attachment.Pin, attachment: attachment, turn: make(chan struct{}, 1),
		claims: map[string]bool{}, finished: make(chan struct{}), stop: func() {},
	}
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		switch record.Phase {
		case cnichain.StepDeleted:
		case cnichain.StepDeleting:
			box.claims[record.Claim.UID] = false
		case cnichain.StepPlanned, cnichain.StepAdding, cnichain.StepAdded:
			if _, leaving := box.claims[record.Claim.UID]; !leaving {
				box.claims[record.Claim.UID] = true
			}
		}
	}
	return box
}

// recovered makes the sandbox of an attachment that an earlier driver left. What was ready at this boot is ready.
func recovered(attachment *cnichain.Attachment, bootID string) *sandbox {
	box := newSandbox(attachment.SandboxID, attachment.Pod, attachment)
	box.background = true
	close(box.finished)
	if attachment.Phase == cnichain.PhaseReady && attachment.BootID == bootID {
		box.ready, box.attached, box.netns = true, slices.Clone(attachment.Steps), attachment.NetNS
	}
	box.stopped = !box.ready
	return box
}

// take waits for the turn; the caller gives it back with give.
func (b *sandbox) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pod %s is still being attached or detached: %w", b.pod, ctx.Err())
	}
}

func (b *sandbox) give() { <-b.turn }

// begin takes the record of a new attempt. The caller has the turn.
func (b *sandbox) begin(attachment *cnichain.Attachment) {
	b.attachment = attachment
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pin = attachment.Pin
}

// hasPin says whether a file is the pin of the attempt that is the last.
func (b *sandbox) hasPin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cnichain.IsPinOf(name, b.pin)
}

// uses says whether something of a claim may be attached.
func (b *sandbox) uses(claimUID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, uses := b.claims[claimUID]
	return uses
}

// steps are those of a ready sandbox that has a claim, else nil.
func (b *sandbox) steps(claimUID string) []cnichain.StepRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready && b.claims[claimUID] {
		return b.attached
	}
	return nil
}

// answer is what RunPodSandbox returns. From now on failures are the background's.
func (b *sandbox) answer() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.finished:
		return b.failure
	default:
		b.background = true
		return nil
	}
}

// slow says whether a chain of the sandbox runs in the background at this moment.
func (b *sandbox) slow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.background && b.running
}

// inBackground says whether RunPodSandbox has returned before the sandbox was ready.
func (b *sandbox) inBackground() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.background
}

// namespace is the runtime's path of the network namespace; empty while the sandbox is not ready.
func (b *sandbox) namespace() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		return ""
	}
	return b.netns
}

func (b *sandbox) setRunning(running bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = running
}

func (b *sandbox) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// setStop sets what ends the attaching; it is called at once if the sandbox is stopped already.
func (b *sandbox) setStop(stop context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = stop
	if b.stopped {
		stop()
	}
}

// setReady is false when the sandbox was stopped meanwhile.
func (b *sandbox) setReady(attachment *cnichain.Attachment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.ready, b.failure, b.attached, b.netns = true, nil, slices.Clone(attachment.Steps), attachment.NetNS
	return true
}

// notReady takes setReady back.
func (b *sandbox) notReady() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready, b.attached = false, nil
}

// finish lets RunPodSandbox return.
func (b *sandbox) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finishLocked()
}

func (b *sandbox) finishLocked() {
	select {
	case <-b.finished:
	default:
		close(b.finished)
	}
}

// tell hands a failure to RunPodSandbox, if it still waits.
func (b *sandbox) tell(err error) (told bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = err
	if b.background {
		return false
	}
	b.stopped = true
	b.finishLocked()
	return true
}

// leave keeps claims from being attached and says which an undoing concerns. A chain that is being attached is stopped and
// undone whole, as is a sandbox of which no other claim is left.
func (b *sandbox) leave(claimUIDs []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := 0
	for uid, wanted := range b.claims {
		if wanted && !slices.Contains(claimUIDs, uid) {
			others++
		}
	}
	if !b.ready || len(claimUIDs) == 0 || others == 0 {
		claimUIDs = sortedKeys(b.claims)
		b.stopped, b.ready, b.attached = true, false, nil
		b.stop()
	}
	for _, uid := range claimUIDs {
		if b.claims[uid] {
			b.claims[uid] = false
		}
	}
	return claimUIDs
}

// left records that claims are undone, and says whether nothing is left.
func (b *sandbox) left(claimUIDs []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range claimUIDs {
		delete(b.claims, uid)
	}
	if len(b.claims) > 0 {
		return false
	}
	b.finishLocked()
	return true
}
