package lab

import (
	"context"
	"fmt"
	"time"
)

// poll calls try until it succeeds or the context ends; then it returns the last error of try. It calls try at least
// once, even if the context has already ended, and never concurrently.
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
