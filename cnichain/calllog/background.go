package calllog

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// maxWaiting is the maximum number of calls waiting to be recorded. maxWaitingBytes limits the total size of their
// streams, since a plugin may print a megabyte.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Background passes calls to an [executor.Recorder] in order, without delaying chains, so that pods do not have to wait
// for their calls to be written. It is safe for concurrent use. If the process is killed, pending calls are lost. On a
// working disk, a call is pending for less than a millisecond.
type Background struct {
	waiting chan executor.Call
	room    *semaphore.Weighted // in bytes, for the streams of calls that have not been recorded yet
}

// NewBackground returns a Background that passes calls to a recorder, from a goroutine that never exits.
func NewBackground(recorder executor.Recorder) *Background {
	b := &Background{waiting: make(chan executor.Call, maxWaiting), room: semaphore.NewWeighted(maxWaitingBytes)}
	go func() {
		for call := range b.waiting {
			recorder.Record(call)
			b.room.Release(roomFor(&call))
		}
	}()
	return b
}

// Record implements [executor.Recorder]. It blocks only while too many calls are waiting.
func (b *Background) Record(call executor.Call) {
	_ = b.room.Acquire(context.Background(), roomFor(&call)) // the context is never canceled
	b.waiting <- call
}

// roomFor returns the number of bytes that a call takes up in room. A call larger than maxWaitingBytes takes up the
// entire room.
func roomFor(call *executor.Call) int64 {
	return int64(min(1+len(call.Stdin)+len(call.Output.Stdout)+len(call.Output.Stderr), maxWaitingBytes))
}

// Flush waits until all calls have been passed to the recorder.
func (b *Background) Flush() {
	_ = b.room.Acquire(context.Background(), maxWaitingBytes) // as in Record
	b.room.Release(maxWaitingBytes)
}
