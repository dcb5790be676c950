package publish

import (
	"maps"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// reading is the state of the host, together with the claims before and after the scan. A scan takes a while, and
// claims are prepared and released in the meantime, so neither set of claims is sufficient on its own:
//
//   - A device whose claim was released during the scan may have been read on its way back to the host. Its previous
//     state is used this time; the release triggers another scan.
//   - A device whose claim was prepared during the scan may already have been in its pod and therefore invisible.
//   - A device that moved into or out of a pod might not have been read at all. It is considered gone only if it cannot
//     have been in a pod either before or after the scan.
type reading struct {
	before claims.Snapshot
	seen   discovery.Facts
	after  claims.Snapshot
}

// merge adds claimed devices to the facts, in which devices already have their remembered names. For a shared device
// that still exists, the observed state takes precedence, because the device stays on the host.
func (r reading) merge(named discovery.Facts) discovery.Facts {
	present := presentIn(r.seen)
	isExclusive := func(held claims.HeldDevice) bool { return held.Exclusive }
	isAway := func(held claims.HeldDevice) bool { return held.Exclusive || !present[claims.Identity(held.Facts)] }
	return named.With(r.before.InUse(isExclusive)...).With(r.after.InUse(isAway)...)
}

func (r reading) inUse() []discovery.Device {
	return r.after.InUse(func(claims.HeldDevice) bool { return true })
}

// holdings returns the devices that claims hold now or held before the scan, as they were published when the claims
// were prepared.
func (r reading) holdings() map[draslices.EntryID]draslices.Holding {
	held := map[draslices.EntryID]draslices.Holding{}
	r.before.AddHoldings(held)
	r.after.AddHoldings(held)
	return held
}

// goneDevices returns the identities of allocated devices that no longer exist. suspects contains the devices that
// cannot have been in a pod before the scan.
func (r reading) goneDevices(
	suspects map[string]bool, mayBeInPod func(claimUID string, held *claims.HeldDevice) bool,
) map[string]bool {
	gone := r.after.GoneDevices(presentIn(r.seen), mayBeInPod)
	maps.DeleteFunc(gone, func(id string, _ bool) bool { return !suspects[id] })
	return gone
}

func presentIn(facts discovery.Facts) map[string]bool {
	present := make(map[string]bool, len(facts.Devices)+len(facts.Orphans))
	for _, devices := range [][]discovery.Device{facts.Devices, facts.Orphans} {
		for i := range devices {
			present[claims.Identity(devices[i])] = true
		}
	}
	return present
}
