package discovery_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// fakeEvents is a subscription that a test breaks and feeds.
type fakeEvents struct {
	subscriptions int
	refuse        int
	changed       func()
	broken        chan error
}

func (f *fakeEvents) Subscribe(_ context.Context, changed func()) (<-chan error, error) {
	if f.refuse > 0 {
		f.refuse--
		return nil, errors.New("no buffer space")
	}
	f.subscriptions++
	f.changed, f.broken = changed, make(chan error, 1)
	return f.broken, nil
}

// waited returns how long the next trigger took; -1 if none came within a minute.
func waited(triggers <-chan struct{}) time.Duration {
	start := time.Now()
	select {
	case <-triggers:
		return time.Since(start)
	case <-time.After(time.Minute):
		return -1
	}
}

func TestWatchMakesOneTriggerOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{}
		triggers, err := discovery.Watch(t.Context(), events, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			events.changed()
			time.Sleep(50 * time.Millisecond)
		}
		if got := waited(triggers); got != 50*time.Millisecond {
			t.Errorf("trigger after %s, want 50ms after the burst", got)
		}
		if got := waited(triggers); got != -1 {
			t.Errorf("a second trigger after %s", got)
		}
	})
}

func TestWatchBoundsABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{}
		triggers, err := discovery.Watch(t.Context(), events, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(50 * time.Millisecond):
					events.changed()
				}
			}
		}()
		if got := waited(triggers); got != 1050*time.Millisecond {
			t.Errorf("trigger after %s, want 1s after the first change", got)
		}
	})
}

func TestWatchRenewsABrokenSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{}
		triggers, err := discovery.Watch(t.Context(), events, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		events.refuse = 2
		events.broken <- errors.New("overrun")
		// 100 ms + 200 ms + 400 ms until it stands again, 100 ms quiet.
		if got := waited(triggers); got != 800*time.Millisecond {
			t.Errorf("trigger after %s, want 800ms", got)
		}
		if events.subscriptions != 2 {
			t.Errorf("%d subscriptions, want 2", events.subscriptions)
		}
	})
}

func TestWatchTriggersEveryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		triggers, err := discovery.Watch(t.Context(), &fakeEvents{}, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got := waited(triggers); got != 30*time.Second {
				t.Errorf("trigger after %s, want 30s", got)
			}
		}
		time.Sleep(10 * time.Minute) // nobody reads
		if len(triggers) != 1 {
			t.Errorf("%d triggers wait, want 1", len(triggers))
		}
	})
}

func TestWatchFailsWhenItCannotSubscribe(t *testing.T) {
	if _, err := discovery.Watch(t.Context(), &fakeEvents{refuse: 1}, time.Hour); err == nil {
		t.Error("no error")
	}
}
