package discovery

import (
	"context"
	"fmt"
	"time"
)

const (
	// quietTime is the time without changes after which a burst of changes is over.
	quietTime = 100 * time.Millisecond
	// burstLimit is how long a burst may delay a trigger.
	burstLimit = time.Second
	// The delays between attempts to subscribe again.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Events is a source of change notifications.
type Events interface {
	// Subscribe returns when the subscription is established. From then on it calls changed, from any goroutine, after
	// every change. changed never blocks. When the subscription ends, because it broke or because the context ended,
	// one error is sent; the channel must have room for it. Watch then subscribes again unless the context has ended.
	Subscribe(ctx context.Context, changed func()) (broken <-chan error, err error)
}

// Watch returns a channel that triggers a new reading: after events of changes, after every renewal of the subscription
// (changes may have been missed), and every period. A burst of changes causes one trigger. The channel holds one
// trigger; further triggers are dropped while it waits, since one reading covers them all. It is never closed. Watch
// fails if the first subscription fails, and works until the context ends.
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
				// Changes before the new subscription caused no events.
				changed()
				break
			}
		}
	}
}

// coalesce turns bursts of changes, and every period, into triggers.
//
// For example, links that appear every 50 ms for ten seconds cause a trigger each second, by limit, and a trigger after
// the last link, by quiet.
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

// signal puts one signal into the channel without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Settled waits until there was no trigger for the time quiet, but at most until limit: after boot, links appear for
// some seconds, and slices that are published too early are published twice. The triggers come from Watch; the caller
// reads the devices afterwards, so no change is lost. It fails if the context ends before.
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
