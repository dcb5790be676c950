package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Virtual functions that come and go while the driver runs are published and withdrawn.
func TestFunctionsComeAndGo(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		passthrough := use{name: "passthrough", plugin: "host-device", exclusive: true}
		vf := use{name: "vf", plugin: "sriov", function: true}
		recording := filepath.Join(t.TempDir(), "recording")
		become(t, recording, 0)
		n := p.publish(t, "changing", recording, []v1alpha1.DeviceExposurePolicy{passthrough.policy(t), vf.policy(t)},
			p.encodings...)
		for _, count := range []int{0, 4, 0, 7} {
			become(t, recording, count)
			want := map[string]int64{"card0-passthrough": 0}
			for i := range count {
				want[fmt.Sprintf("card0v%d-vf", i)] = linkSpeed / int64(count) / 100 * 100 // the share in whole steps
			}
			err := n.until(t.Context(), fmt.Sprintf("a card with %d virtual functions is published", count),
				func() error {
					devices, err := n.devices()
					if err != nil {
						return err
					}
					got := map[string]int64{}
					for name, device := range devices {
						got[name] = bandwidthOf(device)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						return fmt.Errorf("bandwidth of devices (-want +got):\n%s", diff)
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// become lets the link recording lead to a machine with so many virtual functions, at once.
func become(t *testing.T, recording string, count int) {
	t.Helper()
	m := machine(1, count)
	if count == 0 {
		m.VirtualFunctions("0000:01:00.0") // a physical function all the same
	}
	point(t, recording, m)
}

// point lets the link recording lead to a machine, at once.
func point(t *testing.T, recording string, m *discoverytest.Host) {
	t.Helper()
	next := recording + ".next"
	if err := os.Symlink(record(t, m), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, recording); err != nil {
		t.Fatal(err)
	}
}
