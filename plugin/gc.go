package plugin

import (
	"context"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// gcPeriod is how often is looked for sandboxes that have ended without our being told.
const gcPeriod = 30 * time.Second

// collectGarbage detaches sandboxes whose end the runtime has not told us: containerd sends no events for pods that are older
// than its process. A list in which a sandbox is missing proves nothing. What counts is that its network namespace is gone from
// where the runtime keeps it, and its pod from the API server, twice in a row.
func (s *sandboxes) collectGarbage(ctx context.Context, podIsGone func(cnichain.Pod) bool) error {
	ticker := s.clock.NewTicker(gcPeriod)
	defer ticker.Stop()
	suspects := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			suspects = s.collect(suspects, podIsGone)
		}
	}
}

// collect detaches the sandboxes that have ended and are suspects already, and returns the others that have.
func (s *sandboxes) collect(suspects map[string]bool, podIsGone func(cnichain.Pod) bool) map[string]bool {
	ended := map[string]bool{}
	for _, box := range s.list() {
		netns := box.namespace()
		switch {
		case netns == "" || s.executor.Host.Exists(netns) || !podIsGone(box.pod):
		case suspects[box.id]:
			s.logger(box).Info("The sandbox has ended, although the runtime has not said so", "netns", netns)
			s.stopSandbox(box.id)
		default:
			ended[box.id] = true
		}
	}
	return ended
}
