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
	// beats contains the heartbeats of the running loops.
	beats map[string]heartbeat
}

type heartbeat struct {
	last time.Time
	// limit is the maximum time until the next beat.
	limit time.Duration
}

// NewHeartbeats creates heartbeats for loops that have not started yet.
func NewHeartbeats(clock clock.PassiveClock) *Heartbeats {
	return &Heartbeats{clock: clock, beats: map[string]heartbeat{}}
}

// Beat records that a loop is making progress, and that its next beat is due within limit.
func (h *Heartbeats) Beat(loop string, limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats[loop] = heartbeat{last: h.clock.Now(), limit: limit}
}

// End records that a loop has ended.
func (h *Heartbeats) End(loop string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.beats, loop)
}

// Overdue returns the loops whose beat is overdue, sorted.
func (h *Heartbeats) Overdue() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var overdue []string
	for _, loop := range slices.Sorted(maps.Keys(h.beats)) {
		beat := h.beats[loop]
		if since := h.clock.Since(beat.last); since > beat.limit {
			overdue = append(overdue, fmt.Sprintf("%s: nothing for %s", loop, since.Round(time.Second)))
		}
	}
	return overdue
}
