package calllog

import (
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// maxWaiting is how many calls wait to be recorded, at most, and maxWaitingBytes how many bytes of streams they have
// together: a plugin may print a megabyte.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Background passes calls on to an [executor.Recorder] in order, without delaying chains: a pod need not wait until its
// calls can be read. It is safe for concurrent use. A killed process loses pending calls, which a working disk
// completes within a millisecond.
type Background struct {
	recorder executor.Recorder

	mu      sync.Mutex
	changed *sync.Cond
	waiting []executor.Call
	bytes   int  // of the streams of waiting calls
	writing bool // a goroutine passes calls on
}

// NewBackground returns what passes calls on to a recorder.
func NewBackground(recorder executor.Recorder) *Background {
	b := &Background{recorder: recorder}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// Record implements [executor.Recorder]. It waits only while too many calls wait.
func (b *Background) Record(call executor.Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.isFull(&call) {
		b.changed.Wait()
	}
	b.waiting, b.bytes = append(b.waiting, call), b.bytes+streamBytes(&call)
	if !b.writing {
		b.writing = true
		go b.write()
	}
}

// write passes on what waits, and ends.
func (b *Background) write() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		next := b.waiting[0]
		b.waiting, b.bytes = b.waiting[1:], b.bytes-streamBytes(&next)
		b.changed.Broadcast()
		b.mu.Unlock()
		b.recorder.Record(next)
		b.mu.Lock()
	}
	b.writing, b.waiting = false, nil // otherwise the array keeps the calls that were passed on
	b.changed.Broadcast()
}

// isFull reports whether a call has to wait to be taken. One that has more bytes than all may have is taken alone.
func (b *Background) isFull(next *executor.Call) bool {
	return len(b.waiting) >= maxWaiting || len(b.waiting) > 0 && b.bytes+streamBytes(next) > maxWaitingBytes
}

func streamBytes(call *executor.Call) int {
	return len(call.Stdin) + len(call.Output.Stdout) + len(call.Output.Stderr)
}

// Flush returns when everything has been passed on.
func (b *Background) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.changed.Wait()
	}
}
