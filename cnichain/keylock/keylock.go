// Package keylock provides locks that are identified by keys. Waiting for a lock can be canceled with a context.
//
// Invariant: it does not depend on the locked objects and imports none of the driver's other packages.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks, each identified by a key. Each lock has a number of places, which is the number of callers
// that can hold the lock at the same time. Waiting for a lock can be canceled with a context.
//
// A key has an entry only while a caller holds its lock or waits for it. Therefore, old claims and sandboxes do not use
// memory, even though a node keeps getting new ones.
type Locks struct {
	places int
	mu     sync.Mutex
	held   map[string]*place
}

type place struct {
	held  chan struct{}
	users int
}

// New returns a set of locks with the given number of places each.
func New(places int) *Locks {
	return &Locks{places: places, held: map[string]*place{}}
}

// Acquire waits for a key's lock and returns a function that releases the lock.
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
		// The order matters. If the entry were deleted while its place is still taken, the next caller would create a
		// new entry and acquire the lock as well.
		return func() { <-entry.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
