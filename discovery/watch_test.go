package discovery_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// fakeEvents is a subscription that tests can send events on and break.
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

// waited returns the time until the next trigger, or -1 if none arrives within a minute.
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
			t.Errorf("triggered after %s, want 50ms after the burst", got)
		}
		if got := waited(triggers); got != -1 {
			t.Errorf("unexpected second trigger after %s", got)
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
			t.Errorf("triggered after %s, want 1s after the first change", got)
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
		// 100 ms + 200 ms + 400 ms until the subscription is renewed, then 100 ms quiet.
		if got := waited(triggers); got != 800*time.Millisecond {
			t.Errorf("triggered after %s, want 800ms", got)
		}
		if events.subscriptions != 2 {
			t.Errorf("got %d subscriptions, want 2", events.subscriptions)
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
				t.Errorf("triggered after %s, want 30s", got)
			}
		}
		time.Sleep(10 * time.Minute) // no goroutine reads
		if len(triggers) != 1 {
			t.Errorf("%d triggers are pending, want 1", len(triggers))
		}
	})
}

func TestWatchFailsWhenItCannotSubscribe(t *testing.T) {
	if _, err := discovery.Watch(t.Context(), &fakeEvents{refuse: 1}, time.Hour); err == nil {
		t.Error("Watch returned no error although it could not subscribe")
	}
}

func TestSettled(t *testing.T) {
	for name, test := range map[string]struct {
		triggers []time.Duration // the delay before each trigger
		want     time.Duration
	}{
		"nothing happens": {nil, 2 * time.Second},
		"links appear": {[]time.Duration{time.Second, 1900 * time.Millisecond, time.Second},
			5900 * time.Millisecond},
		"after a silence": {[]time.Duration{time.Second, 2100 * time.Millisecond}, 3 * time.Second},
		"without an end":  {slices.Repeat([]time.Duration{time.Second}, 60), 20 * time.Second},
		"one at the limit": {append(slices.Repeat([]time.Duration{time.Second}, 19), 500*time.Millisecond),
			20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				triggers := make(chan struct{}, 60)
				go func() {
					for _, pause := range test.triggers {
						select {
						case <-t.Context().Done():
							return
						case <-time.After(pause):
							triggers <- struct{}{}
						}
					}
				}()
				start := time.Now()
				if err := discovery.Settled(t.Context(), triggers, 2*time.Second, 20*time.Second); err != nil {
					t.Error(err)
				}
				if got := time.Since(start); got != test.want {
					t.Errorf("settled after %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestSettledEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	if err := discovery.Settled(ctx, nil, time.Hour, time.Hour); !errors.Is(err, cause) {
		t.Errorf("error = %v, want the cause of the cancellation", err)
	}
}

// messages simulates a socket: each Read returns one message.
type messages []string

func (m *messages) Read(buffer []byte) (int, error) {
	if len(*m) == 0 {
		return 0, errors.New("no buffer space")
	}
	length := copy(buffer, (*m)[0])
	*m = (*m)[1:]
	return length, nil
}

func TestUevents(t *testing.T) {
	const bind = "bind@/devices/pci0000:00/0000:03:00.2\x00ACTION=bind\x00DEVPATH=/devices/pci0000:00/0000:03:00.2\x00"
	for message, want := range map[string]int{
		bind + "SUBSYSTEM=pci\x00DRIVER=vfio-pci\x00":                                       1,
		"add@/devices/virtual/net/br0\x00SUBSYSTEM=net\x00SEQNUM=7\x00":                     1,
		"add@/devices/pci0000:00/infiniband/mlx5_0\x00SUBSYSTEM=infiniband":                 1,
		"add@/devices/virtual/net/br0/queues/rx-0\x00SUBSYSTEM=queues\x00":                  0,
		"change@/devices/virtual/block/SUBSYSTEM=net\x00SUBSYSTEM=block\x00X=SUBSYSTEM=net": 0,
		"": 0,
		strings.Repeat("x", 10000) + "\x00SUBSYSTEM=net": 0, // truncated
	} {
		changes := 0
		err := discovery.ReadUevents(&messages{message}, func() { changes++ })
		if changes != want || err == nil || !strings.Contains(err.Error(), "no buffer space") {
			t.Errorf("%.60q: got %d changes, want %d; error %v", message, changes, want, err)
		}
	}
}
