package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// sandbox is one pod sandbox with claims of ours.
type sandbox struct {
	id  string
	pod cnichain.Pod

	// turn is taken by whoever runs the executor, and with it the attachment, which the executor changes.
	turn       chan struct{}
	attachment *cnichain.Attachment

	mu         sync.Mutex // guards the rest; never held over I/O
	claims     map[string]bool
	attached   []cnichain.StepRecord // a copy of the steps, while ready
	stop       context.CancelFunc    // ends the attaching
	ready      bool
	background bool // RunPodSandbox has returned; failures are retried here
	stopped    bool
	failure    error
	finished   chan struct{} // closed when RunPodSandbox has its answer
	detaching  chan struct{} // not nil while it is being undone in the background; closed at the end
}

func newSandbox(id string, pod cnichain.Pod, attachment *cnichain.Attachment) *sandbox {
	box := &sandbox{
		id: id, pod: pod, attachment: attachment, turn: make(chan struct{}, 1),
		claims: map[string]bool{}, finished: make(chan struct{}), stop: func() {},
	}
	for i := range attachment.Steps {
		if attachment.Steps[i].Phase != cnichain.StepDeleted {
			box.claims[attachment.Steps[i].Claim.UID] = true
		}
	}
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

func (b *sandbox) uses(claimUID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claims[claimUID]
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

var errStopped = errors.New("the sandbox is being stopped")

func (b *sandbox) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// succeed is false when the sandbox was stopped meanwhile.
func (b *sandbox) succeed(attachment *cnichain.Attachment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.ready, b.failure, b.attached = true, nil, slices.Clone(attachment.Steps)
	b.finish()
	return true
}

// finish lets RunPodSandbox return; b.mu is held.
func (b *sandbox) finish() {
	select {
	case <-b.finished:
	default:
		close(b.finished)
	}
}

// leave says which claims an undoing concerns, and keeps them from being attached. A chain that is being attached is
// stopped and undone whole, as is a sandbox of which no other claim is left.
func (b *sandbox) leave(claimUIDs []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := len(b.claims)
	for _, uid := range claimUIDs {
		if b.claims[uid] {
			others--
		}
	}
	if b.ready && len(claimUIDs) > 0 && others > 0 {
		return claimUIDs
	}
	b.stopped, b.ready = true, false
	b.stop()
	return sortedKeys(b.claims)
}

// left records that claims are undone, nil meaning all, and says whether nothing is left.
func (b *sandbox) left(claimUIDs []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range claimUIDs {
		delete(b.claims, uid)
	}
	if claimUIDs != nil && len(b.claims) > 0 {
		return false
	}
	clear(b.claims)
	b.finish()
	return true
}
