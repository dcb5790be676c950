package publish

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// Memory is freed once after a period without changes, but not while pods are starting and terminating.
func TestMemoryIsFreedWhenNothingChanges(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.Clock = clock.RealClock{} // the bubble's clock
	var rests atomic.Int32
	m.FreeMemory = func() { rests.Add(1) }
	f.must(m.Refresh(t.Context()))
	f.clock.Step(settleTime)
	f.must(m.Refresh(t.Context())) // the names have settled, so there is nothing to wait for
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m.triggers, m.soon = make(chan struct{}, 1), make(chan struct{}, 1) // created in this bubble
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx, nil) }()
		for range 20 {
			m.Trigger()
			time.Sleep(freeMemoryAfter / 2) // in the bubble's time
		}
		synctest.Wait()
		if n := rests.Load(); n != 0 {
			t.Errorf("memory was freed %d times while devices changed, want 0", n)
		}
		time.Sleep(10 * freeMemoryAfter)
		synctest.Wait()
		if n := rests.Load(); n != 1 {
			t.Errorf("memory was freed %d times afterwards, want 1", n)
		}
		cancel()
		<-done
	})
}
