package discovery

import (
	"context"
	"fmt"
	"time"
)

const (
	// quietTime is how long there must be no changes before a burst of changes is considered over.
	quietTime = 100 * time.Millisecond
	// burstLimit is the maximum time that a burst can delay a trigger.
	burstLimit = time.Second
	// minBackoff and maxBackoff are the limits for the delay between attempts to resubscribe.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Events is a source of change notifications.
type Events interface {
	// Subscribe returns once the subscription is established. From then on, changed is called after every change, from
	// any goroutine. changed never blocks. When the subscription fails or ctx is done, one error is sent on the
	// channel, which must be buffered so that sending does not block. Watch then subscribes again unless ctx is done.
	Subscribe(ctx context.Context, changed func()) (broken <-chan error, err error)
}

// Watch returns a channel that requests new scans: after change events, whenever the subscription is renewed (changes
// may have been missed), and once per period. A burst of changes causes a single trigger. The channel buffers one
// trigger; while that trigger is pending, further triggers are dropped, since one scan covers them all. The channel is
// never closed. Watch fails if the first subscription fails; otherwise, it runs until ctx is done.
func Watch(ctx context.Context, events Events, period time.Duration) (<-chan struct{}, error) {
	raw := make(chan struct{}, 1)
	changed := func() { signal(raw) }
	broken, err := events.Subscribe(ctx, changed)
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to changes of network devices: %w", err)
	}
	triggers := make(chan struct{}, 1)
	go renew(ctx, events, changed, broken)
	go coalesce(ctx, raw, triggers, period)
	return triggers, nil
}

// renew resubscribes whenever the subscription breaks, until ctx is done.
func renew(ctx context.Context, events Events, changed func(), broken <-chan error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-broken: //nolint:errcheck // whatever the reason, the remedy is a new subscription
		}
		for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			var err error
			if broken, err = events.Subscribe(ctx, changed); err == nil {
				// Changes that happened before the new subscription did not cause any events.
				changed()
				break
			}
		}
	}
}

// coalesce turns bursts of changes into triggers, and also triggers once per period.
//
// For example, if a new link appears every 50 ms for ten seconds, burstLimit causes a trigger every second, and
// quietTime causes a trigger after the last link.
func coalesce(ctx context.Context, raw <-chan struct{}, triggers chan<- struct{}, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var quiet, limit <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-raw:
			if limit == nil {
				limit = time.After(burstLimit)
			}
			quiet = time.After(quietTime)
			continue
		case <-quiet:
		case <-limit:
		case <-tick.C:
		}
		quiet, limit = nil, nil
		signal(triggers)
	}
}

// signal sends on the channel unless that would block.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Settled waits until there have been no triggers for the duration quiet, but no longer than limit: after boot, links
// keep appearing for a few seconds, and slices that are published too early have to be published again. The triggers
// come from Watch. Settled consumes them, but no change is lost, because the caller reads the devices afterwards.
// Settled fails if ctx is done first.
func Settled(ctx context.Context, triggers <-chan struct{}, quiet, limit time.Duration) error {
	tooLate := time.After(limit)
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped while the node's network devices were appearing: %w", context.Cause(ctx))
		case <-tooLate:
			return nil
		case <-time.After(quiet):
			return nil
		case <-triggers:
		}
	}
}
