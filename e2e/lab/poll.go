package lab

import (
	"context"
	"fmt"
	"time"
)

// poll calls try until it succeeds or the context ends; then it tells why try failed last. Try is called at least once,
// also if the context has ended. It is never called twice at the same time.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		last := try(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}
