package keylock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The number of callers holding a lock at the same time never exceeds the number of places.
func TestPlaces(t *testing.T) {
	locks := New(2)
	for range 2 {
		if _, err := locks.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a third caller acquired the lock: %v", err)
	}
}

func TestLocksWaitNoLongerThanTheirContext(t *testing.T) {
	locks := New(1)
	unlock, err := locks.Acquire(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := locks.Acquire(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unexpected error: %v", err)
	}
	errEnded := errors.New("ended")
	ended, end := context.WithCancelCause(context.Background())
	end(errEnded)
	if _, err := locks.Acquire(ended, "a"); !errors.Is(err, errEnded) {
		t.Errorf("unexpected error: %v", err)
	}
	unlock()
	unlock, err = locks.Acquire(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if len(locks.held) != 0 {
		t.Errorf("the set still contains locks: %v", locks.held)
	}
}
