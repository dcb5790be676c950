package publish

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// carrierHoldOff is how long a link must have had its carrier back before it is considered good. As a result, a
// flapping link is not considered good, and it does not cause a write of the slices on every flap.
const carrierHoldOff = 30 * time.Second

// carrierTracker tracks the links that have lost their carrier: they had a carrier in an earlier scan and were still
// administratively up when it disappeared. A link that never had a carrier may be unused on purpose, and a link that
// has just been set up needs a moment to get its carrier; neither is considered lost. carrierTracker is safe for
// concurrent use.
type carrierTracker struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	states map[string]carrierState // by identity
	lost   map[string]bool         // by identity; includes the virtual functions of lost physical functions
}

type carrierState struct {
	// good is true if the link had a carrier in the last scan.
	good bool
	lost bool
	// back is the time when a lost link regained its carrier.
	back time.Time
}

// newCarrierTracker creates a tracker. lost contains the identities of the links that were considered lost after the
// last scan by the previous driver process.
func newCarrierTracker(clock clock.PassiveClock, lost ...string) *carrierTracker {
	c := &carrierTracker{clock: clock, states: map[string]carrierState{}, lost: map[string]bool{}}
	for _, id := range lost {
		c.states[id] = carrierState{lost: true}
	}
	return c
}

func (c *carrierTracker) links() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lost []string
	for _, id := range slices.Sorted(maps.Keys(c.states)) {
		if c.states[id].lost {
			lost = append(lost, id)
		}
	}
	return lost
}

// observe records a scan and reports whether the result of isLost has changed for any device.
func (c *carrierTracker) observe(facts discovery.Facts) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	states, lost := make(map[string]carrierState, len(c.states)), map[string]bool{}
	physical := map[discovery.PCIAddress]bool{}
	for i := range facts.Devices {
		device := &facts.Devices[i]
		if !carriesCable(device.Type) {
			continue
		}
		id := claims.Identity(*device)
		states[id] = c.states[id].next(device, now)
		if states[id].lost {
			lost[id] = true
			physical[device.PCIAddress] = device.PCIAddress != ""
		}
	}
	for i := range facts.Devices {
		if device := &facts.Devices[i]; device.PFAddress != "" && physical[device.PFAddress] {
			lost[claims.Identity(*device)] = true
		}
	}
	changed = !maps.Equal(lost, c.lost)
	c.states, c.lost = states, lost
	return changed
}

// next returns the link's state after a scan.
func (s carrierState) next(device *discovery.Device, now time.Time) carrierState {
	switch {
	case !device.Carrier:
		return carrierState{lost: s.lost || s.good && device.AdminUp}
	case !s.lost || s.good && now.Sub(s.back) >= carrierHoldOff:
		return carrierState{good: true}
	case s.good:
		return s
	}
	return carrierState{good: true, lost: true, back: now}
}

// retryAfter returns the time until the next lost link may be considered good again, or 0 if there is none.
func (c *carrierTracker) retryAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var soonest time.Duration
	for _, state := range c.states {
		if left := carrierHoldOff - c.clock.Since(state.back); state.lost && state.good &&
			(soonest == 0 || left < soonest) {
			soonest = max(left, time.Millisecond)
		}
	}
	return soonest
}

// carriesCable reports whether the carrier of devices of this type reflects the state of a cable. In contrast, the
// carrier of a bridge, for example, depends on the bridge's ports, which change as pods start and stop.
func carriesCable(kind string) bool {
	switch kind {
	case discovery.TypePF, discovery.TypeNIC, discovery.TypeBond:
		return true
	}
	return false
}

func (c *carrierTracker) isLost(device discovery.Device) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[claims.Identity(device)]
}
