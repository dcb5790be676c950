package publish

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// taintKey is the key of the taint on devices that nobody should be given now; its value says why.
const taintKey = v1alpha1.DriverName + "/unavailable"

// Values of the taint.
const (
	// taintGone: a claim holds the device, but the machine does not have it any more.
	taintGone = "gone"
	// taintWithdrawn: a claim holds the device, but no policy gives it any more.
	taintWithdrawn = "withdrawn"
	// taintQuarantined: what an earlier pod left on the device could not be removed.
	taintQuarantined = "quarantined"
	// taintNoCarrier: the link, or that of the physical function, had a carrier and has lost it.
	taintNoCarrier = "no-carrier"
)

// taintSource finds the entries that nobody should be given.
type taintSource struct {
	// gone reports whether a device that a claim holds does not exist any more.
	gone func(discovery.Device) bool
	// quarantined reports whether a device is held back.
	quarantined func(discovery.Device) bool
	// lost reports whether a device has lost its carrier.
	lost func(discovery.Device) bool
}

// taintsOf is the taint of a device: one at most, with the reason that lasts longest, since each of them alone keeps
// pods away.
func (u taintSource) taintsOf(entry draslices.Entry) []resourceapi.DeviceTaint {
	reason := ""
	switch device := entry.Device; {
	case u.gone(device):
		reason = taintGone
	case u.quarantined(device):
		reason = taintQuarantined
	case entry.Withdrawn:
		reason = taintWithdrawn
	case u.lost(device):
		reason = taintNoCarrier
	default:
		return nil
	}
	return []resourceapi.DeviceTaint{{Key: taintKey, Value: reason, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}
