package calllog

import (
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// maxWaiting is the maximum number of calls that wait to be recorded. maxWaitingBytes is the maximum total size of
// their streams, since a plugin may print a megabyte.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Background passes calls to an [executor.Recorder] in order, without delaying chains: a pod does not have to wait
// until its calls are written. It is safe for concurrent use. If the process is killed, pending calls are lost. On a
// working disk, a call is pending for less than a millisecond.
type Background struct {
	recorder executor.Recorder

	mu      sync.Mutex
	changed *sync.Cond
	waiting []executor.Call
	bytes   int  // total size of the streams of waiting calls
	writing bool // a goroutine is passing on calls
}

// NewBackground returns a Background that passes calls to a recorder.
func NewBackground(recorder executor.Recorder) *Background {
	b := &Background{recorder: recorder}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// Record implements [executor.Recorder]. It only blocks while too many calls are waiting.
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

// write passes on the waiting calls, and returns when there are none.
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
	b.writing, b.waiting = false, nil // release the array, which refers to processed calls
	b.changed.Broadcast()
}

// isFull reports whether a call has to wait until it is accepted. A call that exceeds maxWaitingBytes is accepted when
// no other call is waiting.
func (b *Background) isFull(next *executor.Call) bool {
	return len(b.waiting) >= maxWaiting || len(b.waiting) > 0 && b.bytes+streamBytes(next) > maxWaitingBytes
}

func streamBytes(call *executor.Call) int {
	return len(call.Stdin) + len(call.Output.Stdout) + len(call.Output.Stderr)
}

// Flush waits until all calls have been passed on.
func (b *Background) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.changed.Wait()
	}
}
