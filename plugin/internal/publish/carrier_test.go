package publish

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// A link that loses its carrier is considered lost, along with its virtual functions, until the link has had its
// carrier back for a while.
func TestCarriersThatAreLost(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	c := newCarrierTracker(clock)
	pf := discovery.Device{Name: "pf0", Type: discovery.TypePF, PCIAddress: "0000:01:00.0", AdminUp: true}
	vf := discovery.Device{Name: "pf0v0", Type: discovery.TypeVF, PCIAddress: "0000:01:00.1", PFAddress: "0000:01:00.0"}
	bridge := discovery.Device{Name: "br0", Type: discovery.TypeBridge, AdminUp: true}
	for _, step := range []struct {
		what             string
		carrier, adminUp bool
		after            time.Duration
		lost, changed    bool
	}{
		{"never had one", false, true, 0, false, false},
		{"plugged in", true, true, 0, false, false},
		{"taken down by an administrator", false, false, 0, false, false},
		{"set up, while the NICs negotiate", false, true, 0, false, false},
		{"and up", true, true, 0, false, false},
		{"unplugged", false, true, 0, true, true},
		{"still", false, true, time.Hour, true, false},
		{"plugged in again", true, true, 0, true, false},
		{"a flap", false, true, carrierHoldOff / 2, true, false},
		{"back", true, true, carrierHoldOff / 2, true, false},
		{"not for long enough", true, true, carrierHoldOff / 2, true, false},
		{"for good", true, true, carrierHoldOff / 2, false, true},
		{"unplugged again", false, true, time.Hour, true, true},
		{"taken down meanwhile", false, false, time.Hour, true, false},
	} {
		clock.Step(step.after)
		pf.Carrier, pf.AdminUp = step.carrier, step.adminUp
		bridge.Carrier = step.carrier
		changed := c.observe(discovery.Facts{Devices: []discovery.Device{bridge, pf, vf}})
		if back := step.carrier && step.lost; back != (c.retryAfter() > 0) {
			t.Errorf("%s: wrong time of the next check: %s", step.what, c.retryAfter())
		}
		if changed != step.changed || c.isLost(pf) != step.lost || c.isLost(vf) != step.lost || c.isLost(bridge) {
			t.Errorf("%s: changed: %t, lost: %t, VF lost: %t, bridge lost: %t", step.what, changed, c.isLost(pf),
				c.isLost(vf), c.isLost(bridge))
		}
	}
	if !c.observe(discovery.Facts{}) || c.isLost(pf) {
		t.Error("a removed NIC is reported as a lost carrier")
	}
	pf.Carrier, pf.AdminUp = false, true
	if c.observe(discovery.Facts{Devices: []discovery.Device{pf}}) {
		t.Error("a NIC that returns to the host from a pod is reported as a lost carrier")
	}
}
