// Package keylock has locks by name that wait no longer than a context.
//
// The rule of this package: it knows nothing of what is locked, and imports no other package of the driver.
package keylock

import (
	"context"
	"sync"
)

// Locks are locks by name, of which each has a number of places, that wait no longer than a context.
//
// A name has an entry only while somebody has its lock or waits for it. So names of claims and sandboxes that are long
// gone take no memory: a node sees new ones for ever.
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

// Acquire waits for the lock of a key and returns what gives it back.
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
		// In this order: an entry that is deleted while its place is taken would be made anew by the next caller, who
		// would then have the lock as well.
		return func() { <-entry.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
