package discovery

import (
	"context"
	"fmt"
	"time"
)

const (
	// quietTime is the time without changes after which a burst of changes is considered over.
	quietTime = 100 * time.Millisecond
	// burstLimit is how long a burst may delay a trigger.
	burstLimit = time.Second
	// minBackoff and maxBackoff limit the delay between attempts to subscribe again.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Events is a source of change notifications.
type Events interface {
	// Subscribe returns once the subscription is established. From then on, it calls changed after every change, from
	// any goroutine. changed never blocks. When the subscription fails or ctx is done, one error is sent on the
	// channel, which must have room for it. Watch then subscribes again unless ctx is done.
	Subscribe(ctx context.Context, changed func()) (broken <-chan error, err error)
}

// Watch returns a channel that triggers a new scan: after change events, after every renewal of the subscription
// (changes may have been missed), and once per period. A burst of changes causes a single trigger. The channel holds
// one trigger; while this trigger waits to be received, further triggers are dropped, since one scan covers them
// all. The channel is never closed. Watch fails if the first subscription fails; otherwise it works until ctx is done.
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

// renew maintains the subscription.
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
				// Changes that occurred before the new subscription caused no events.
				changed()
				break
			}
		}
	}
}

// coalesce turns bursts of changes into triggers, and also triggers once per period.
//
// For example, if links appear every 50 ms for ten seconds, this causes a trigger every second because of limit, and a
// trigger after the last link because of quiet.
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

// signal sends a signal on the channel without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Settled waits until there has been no trigger for the duration quiet, but no longer than limit: after boot, links
// keep appearing for a few seconds, and slices that are published too early have to be published again. The triggers
// come from Watch; the caller reads the devices afterwards, so no change is lost. Settled fails if ctx is done first.
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
