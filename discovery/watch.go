package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// quietTime is how long nothing must have happened before a burst of changes is over.
	quietTime = 100 * time.Millisecond
	// burstLimit is how long a burst may hold a trigger back.
	burstLimit = time.Second
	// The waits between attempts to subscribe again.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// receiveBuffer holds the notifications of a few thousand links.
	receiveBuffer = 1 << 20
)

// Events is a source of change notifications.
type Events interface {
	// Subscribe returns when the subscription stands. From then on it calls changed, from any goroutine, after every
	// change. Changed never blocks. When the subscription is over, because it broke or because the context ended, one
	// error is sent; the channel must have room for it. Watch then subscribes again unless the context has ended.
	Subscribe(ctx context.Context, changed func()) (broken <-chan error, err error)
}

// Watch returns a channel that says "read again": after changes of the kernel's links and routes, whenever the
// subscription had to be renewed (changes may have been missed meanwhile), and every period. A burst of changes is one
// trigger. The channel holds one trigger; more are dropped while it waits, since one reading serves them all. It is
// never closed. Watch fails if the first subscription does; it works until the context ends.
func Watch(ctx context.Context, events Events, period time.Duration) (<-chan struct{}, error) {
	raw := make(chan struct{}, 1)
	changed := func() { signal(raw) }
	broken, err := events.Subscribe(ctx, changed)
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to changes of links and routes: %w", err)
	}
	triggers := make(chan struct{}, 1)
	go renew(ctx, events, changed, broken)
	go coalesce(ctx, raw, triggers, period)
	return triggers, nil
}

// renew keeps the subscription standing.
func renew(ctx context.Context, events Events, changed func(), broken <-chan error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-broken: //nolint:errcheck // whatever the reason, the cure is a new subscription
		}
		for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			var err error
			if broken, err = events.Subscribe(ctx, changed); err == nil {
				changed()
				break
			}
		}
	}
}

// coalesce turns bursts of changes, and every period, into triggers.
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

// signal leaves one signal in the channel, without waiting.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// KernelEvents returns the notifications of rtnetlink for the network namespace of the thread that subscribes, which
// in a process that never changes it is the namespace of the process.
func KernelEvents() Events {
	return rtnetlink{}
}

type rtnetlink struct{}

// Subscribe implements Events.
func (rtnetlink) Subscribe(ctx context.Context, changed func()) (<-chan error, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	failed := func(err error) { cancel(err) }
	links, routes := make(chan netlink.LinkUpdate), make(chan netlink.RouteUpdate)
	err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{
		ErrorCallback: failed, ReceiveBufferSize: receiveBuffer})
	if err != nil {
		cancel(err)
		return nil, fmt.Errorf("links: %w", err)
	}
	go drain(links, changed, cancel)
	err = netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{
		ErrorCallback: failed, ReceiveBufferSize: receiveBuffer})
	if err != nil {
		cancel(err)
		return nil, fmt.Errorf("routes: %w", err)
	}
	go drain(routes, changed, cancel)
	broken := make(chan error, 1)
	context.AfterFunc(ctx, func() { broken <- context.Cause(ctx) })
	return broken, nil
}

// drain reports every update and cancels when the updates end.
func drain[T any](updates <-chan T, changed func(), cancel context.CancelCauseFunc) {
	for range updates {
		changed()
	}
	cancel(errors.New("the netlink socket was closed"))
}
