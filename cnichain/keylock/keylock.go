// Package keylock has locks by name that wait no longer than a context.
//
// The rule of this package: it does not depend on the locked objects, and imports no other package of the driver.
package keylock

import (
	"context"
	"sync"
)

// Locks are locks by name, each with a number of places, that wait no longer than a context.
//
// A name only has an entry while its lock is held or waited for. Names of old claims and sandboxes therefore take no
// memory: a node gets new ones indefinitely.
type Locks struct {
	places int
	mu     sync.Mutex
	held   map[string]*place
}

type place struct {
	held  chan struct{}
	users int
}

// New makes locks that each have a number of places.
func New(places int) *Locks {
	return &Locks{places: places, held: map[string]*place{}}
}

// Acquire waits for the lock of a key and returns the function that releases it.
func (l *Locks) Acquire(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	entry := l.held[key]
	if entry == nil {
		entry = &place{held: make(chan struct{}, l.places)}
		l.held[key] = entry
	}
	entry.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if entry.users--; entry.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case entry.held <- struct{}{}:
		// In this order: if the entry were deleted while its place is taken, the next caller would create a new one and
		// also get the lock.
		return func() { <-entry.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
