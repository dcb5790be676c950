package keylock

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLocksWaitNoLongerThanTheirContext(t *testing.T) {
	locks := New(1)
	unlock, err := locks.Acquire(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := locks.Acquire(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	unlock()
	unlock, err = locks.Acquire(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if len(locks.held) != 0 {
		t.Errorf("locks are left: %v", locks.held)
	}
}
