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

// carrierHoldOff is how long a link must have its carrier again before it counts as good: one that flaps does not, and
// slices are not written with every flap.
const carrierHoldOff = 30 * time.Second

// carrierTracker remembers which links have lost their carrier: they had one when they were read last, and are up
// still. A link that never had one may be meant to be like that, and one that is taken up needs a moment; neither has
// lost anything. It is safe for concurrent use.
//
// For example, a cable is pulled for a second, three times in a minute. The link is lost from the first pull until 30 s
// after the last, and the slices are written twice.
type carrierTracker struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	states map[string]carrierState // by identity
	lost   map[string]bool         // by identity; virtual functions with their physical function
}

type carrierState struct {
	// good reports whether the link had a carrier at the last reading.
	good bool
	lost bool
	// back is when a link that has lost its carrier had it again.
	back time.Time
}

// newCarrierTracker begins with links that had lost their carrier when an earlier driver looked.
func newCarrierTracker(clock clock.PassiveClock, lost ...string) *carrierTracker {
	c := &carrierTracker{clock: clock, states: map[string]carrierState{}, lost: map[string]bool{}}
	for _, id := range lost {
		c.states[id] = carrierState{lost: true}
	}
	return c
}

// links are the identities of the links that have lost their carrier, sorted.
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

// observe takes note of a reading. It reports whether the answer of isLost has changed for any device.
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

// next is the state after a reading.
//
// In the order of the cases: without a carrier a link keeps its state, or loses it now; one that never lost it, or has
// had it back for long enough, is good; one that has it back for a shorter time goes on waiting; and the last case is
// the first reading with the carrier back.
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

// retryAfter returns after what time a link whose carrier is back may count as good; 0 if there is none.
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

// carriesCable reports whether the carrier of this device type shows the state of a cable. A bridge takes its carrier
// from its ports, which change with pods.
func carriesCable(kind string) bool {
	switch kind {
	case discovery.TypePF, discovery.TypeNIC, discovery.TypeBond:
		return true
	}
	return false
}

// isLost reports whether a device, or the physical function of a virtual one, has lost its carrier.
func (c *carrierTracker) isLost(device discovery.Device) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[claims.Identity(device)]
}
