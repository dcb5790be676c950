package publish

import (
	"maps"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// reading is what was seen of the host, with the claims before and after it. A reading takes a while, and claims come
// and go meanwhile, so neither moment alone is enough:
//
//   - A device of a claim that was released meanwhile may be seen half-way back to the host. It is taken as it was this once more;
//     the release asks for another reading.
//   - A device of a claim that was prepared meanwhile may have been in its pod already, where nobody sees it.
//   - A device that moved into a pod, or out of one, may be seen nowhere. It is gone only if it could be in no pod
//     before the reading, and none after it.
type reading struct {
	before claims.Snapshot
	seen   discovery.Facts
	after  claims.Snapshot
}

// merge puts devices that claims hold into the facts, which are those that were seen under the names that are kept.
// What was seen of a shared device is true, since it stays on the host, unless it is gone.
func (r reading) merge(named discovery.Facts) discovery.Facts {
	present := presentIn(r.seen)
	isExclusive := func(held claims.HeldDevice) bool { return held.Exclusive }
	isAway := func(held claims.HeldDevice) bool { return held.Exclusive || !present[claims.Identity(held.Facts)] }
	return named.With(r.before.InUse(isExclusive)...).With(r.after.InUse(isAway)...)
}

// inUse returns the devices that claims hold, as they were when they were prepared.
func (r reading) inUse() []discovery.Device {
	return r.after.InUse(func(claims.HeldDevice) bool { return true })
}

// holdings are what claims hold, or have held before the reading, as it was published then.
func (r reading) holdings() map[draslices.EntryID]draslices.Holding {
	held := map[draslices.EntryID]draslices.Holding{}
	r.before.AddHoldings(held)
	r.after.AddHoldings(held)
	return held
}

// goneDevices returns the identities of held devices that do not exist any more. suspects are those that could be in no
// pod before the reading.
func (r reading) goneDevices(
	suspects map[string]bool, mayBeInPod func(claimUID string, held *claims.HeldDevice) bool,
) map[string]bool {
	gone := r.after.GoneDevices(presentIn(r.seen), mayBeInPod)
	maps.DeleteFunc(gone, func(id string, _ bool) bool { return !suspects[id] })
	return gone
}

// presentIn returns the identities of all devices of a reading.
func presentIn(facts discovery.Facts) map[string]bool {
	present := make(map[string]bool, len(facts.Devices)+len(facts.Orphans))
	for _, devices := range [][]discovery.Device{facts.Devices, facts.Orphans} {
		for i := range devices {
			present[claims.Identity(devices[i])] = true
		}
	}
	return present
}
