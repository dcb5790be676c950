package publish

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// taintKey is the key of the taint on devices that must not be allocated at the moment. The taint's value is the
// reason.
const taintKey = v1alpha1.DriverName + "/unavailable"

// These are the values of the taint.
const (
	// taintGone: a claim holds the device, but it no longer exists on the machine.
	taintGone = "gone"
	// taintWithdrawn: a claim holds the device, but no policy exposes the device in this form anymore.
	taintWithdrawn = "withdrawn"
	// taintQuarantined: the device could not be cleaned up after an earlier pod.
	taintQuarantined = "quarantined"
	// taintNoCarrier: the link or its physical function had a carrier and has lost it.
	taintNoCarrier = "no-carrier"
)

// taintsOf returns the device's taint, if any. There is at most one, since a single taint is enough to keep pods off
// the device; if there are several reasons, the taint's value is the reason that lasts longest.
func (p *Publisher) taintsOf(entry draslices.Entry) []resourceapi.DeviceTaint {
	reason := ""
	switch device := entry.Device; {
	case p.IsGone(device):
		reason = taintGone
	case p.Quarantined(device):
		reason = taintQuarantined
	case entry.Withdrawn:
		reason = taintWithdrawn
	case p.LostCarrier(device):
		reason = taintNoCarrier
	default:
		return nil
	}
	return []resourceapi.DeviceTaint{{Key: taintKey, Value: reason, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}
