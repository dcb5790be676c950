package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Heartbeats detects loops that hang. It is safe for concurrent use.
type Heartbeats struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// beats maps the names of running loops to their last heartbeats.
	beats map[string]heartbeat
}

type heartbeat struct {
	last time.Time
	// limit is the maximum time before the next beat.
	limit time.Duration
}

// NewHeartbeats returns a Heartbeats without any running loops.
func NewHeartbeats(clock clock.PassiveClock) *Heartbeats {
	return &Heartbeats{clock: clock, beats: map[string]heartbeat{}}
}

// Beat records that a loop is making progress and that its next beat is due within limit.
func (h *Heartbeats) Beat(loop string, limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats[loop] = heartbeat{last: h.clock.Now(), limit: limit}
}

// End records that a loop has ended, so that no further beats are due.
func (h *Heartbeats) End(loop string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.beats, loop)
}

// Overdue returns the names of the loops whose beats are overdue, sorted.
func (h *Heartbeats) Overdue() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var overdue []string
	for _, loop := range slices.Sorted(maps.Keys(h.beats)) {
		beat := h.beats[loop]
		if since := h.clock.Since(beat.last); since > beat.limit {
			overdue = append(overdue, fmt.Sprintf("%s: no progress for %s", loop, since.Round(time.Second)))
		}
	}
	return overdue
}
