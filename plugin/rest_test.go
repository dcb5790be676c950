package plugin

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/procfs"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// Memory is given back once when nothing changes any more, not while pods come and go.
func TestMemoryIsGivenBackAtRest(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	var rests atomic.Int32
	m.rest = func() error { rests.Add(1); return nil }
	f.must(m.refresh(t.Context()))
	f.clock.Step(settleTime)
	f.must(m.refresh(t.Context())) // the names have settled: there is nothing to wait for
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m.triggers = make(chan struct{}, 1) // of this bubble
		done := make(chan struct{})
		go func() { defer close(done); m.run(ctx, nil) }()
		for range 20 {
			m.trigger()
			time.Sleep(restAfter / 2) // of the bubble
		}
		synctest.Wait()
		if n := rests.Load(); n != 0 {
			t.Errorf("%d times while devices changed", n)
		}
		time.Sleep(10 * restAfter)
		synctest.Wait()
		if n := rests.Load(); n != 1 {
			t.Errorf("%d times afterwards", n)
		}
		cancel()
		<-done
	})
}

// Constants that are unmapped are still there.
func TestConstantsAreUnmapped(t *testing.T) {
	if !constantsAreOfTheFile() {
		t.Skip("this is no executable of fixed addresses")
	}
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	mapped := func() uint64 {
		status, err := self.NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		return status.RssFile
	}
	before := mapped()
	if err := giveBack(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(); after >= before {
		t.Errorf("%d bytes of files were mapped, and then %d", before, after)
	}
}
