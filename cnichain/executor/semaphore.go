package executor

import (
	"context"
	"sync"
)

// keyedSemaphore bounds how many callers with one key run at once. It forgets keys that nobody holds or waits for.
type keyedSemaphore struct {
	limit int
	mu    *sync.Mutex
	byKey map[string]*semaphore
}

type semaphore struct {
	slots chan struct{}
	users int
}

func newKeyedSemaphore(limit int) keyedSemaphore {
	return keyedSemaphore{limit: limit, mu: &sync.Mutex{}, byKey: map[string]*semaphore{}}
}

// Acquire waits for a slot, or for the end of ctx. The caller frees the slot with release. users counts those who hold
// and those who wait, and the last one takes the entry with it: keys are IDs of sandboxes, of which a node sees new
// ones for ever.
func (k *keyedSemaphore) Acquire(ctx context.Context, key string) (release func(), err error) {
	k.mu.Lock()
	entry := k.byKey[key]
	if entry == nil {
		entry = &semaphore{slots: make(chan struct{}, k.limit)}
		k.byKey[key] = entry
	}
	entry.users++
	k.mu.Unlock()
	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if entry.users--; entry.users == 0 {
			delete(k.byKey, key)
		}
	}
	select {
	case entry.slots <- struct{}{}:
		return func() { <-entry.slots; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
}
