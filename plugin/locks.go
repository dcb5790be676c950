package plugin

import (
	"context"
	"sync"
)

// whatIsSlow says what to do about calls that wait for others.
const whatIsSlow = "it is tried again; netdra trace on the node shows which CNI plugin is slow"

// keyedLocks are locks by name, of which each has a number of places, that wait no longer than a context.
type keyedLocks struct {
	places int
	mu     sync.Mutex
	held   map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{}
	users int
}

func newKeyedLocks(places int) *keyedLocks {
	return &keyedLocks{places: places, held: map[string]*keyedLock{}}
}

// lock waits for the lock of a key and returns what gives it back.
func (l *keyedLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	entry := l.held[key]
	if entry == nil {
		entry = &keyedLock{held: make(chan struct{}, l.places)}
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
		return func() { <-entry.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
