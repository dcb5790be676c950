package claims

import (
	"github.com/dra-networking/dra-network-driver/discovery"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Snapshot contains all records at a point in time, sorted by UID. It is immutable.
type Snapshot []Record

// InUse returns the held devices that satisfy the predicate, with their facts at the time when the claim was prepared.
// Each device is returned once; the devices are sorted by claim.
func (s Snapshot) InUse(which func(HeldDevice) bool) []discovery.Device {
	var devices []discovery.Device
	seen := map[string]bool{}
	for i := range s {
		for _, held := range s[i].Devices {
			if which(held) && !seen[Identity(held.Facts)] {
				seen[Identity(held.Facts)] = true
				devices = append(devices, held.Facts)
			}
		}
	}
	return devices
}

// AddHoldings adds to held the devices that claims hold, as they were published when the claims were prepared.
func (s Snapshot) AddHoldings(held map[draslices.EntryID]draslices.Holding) {
	for i := range s {
		for _, device := range s[i].Devices {
			id := draslices.EntryID{Pool: device.Pool, Name: device.Name}
			if device.Persona == nil && held[id].Persona != nil {
				continue // the record is from an earlier driver and contains less data
			}
			held[id] = draslices.Holding{Device: device.Facts.Name, Bandwidth: device.Bandwidth,
				Persona: device.Persona}
		}
	}
}

// GoneDevices returns the identities of the held devices that no longer exist: they are missing from the host scan
// and cannot be in a pod. Virtual functions are discovered in any namespace, and shared devices stay on the host;
// any other device may be in a pod or on its way to or from one, as reported by mayBeInPod.
func (s Snapshot) GoneDevices(
	present map[string]bool, mayBeInPod func(claimUID string, held *HeldDevice) bool,
) map[string]bool {
	gone := map[string]bool{}
	for i := range s {
		for j := range s[i].Devices {
			held := &s[i].Devices[j]
			id := Identity(held.Facts)
			moves := held.Exclusive && held.Facts.Type != discovery.TypeVF
			if !present[id] && (!moves || !mayBeInPod(s[i].Claim.UID, held)) {
				gone[id] = true
			}
		}
	}
	return gone
}
