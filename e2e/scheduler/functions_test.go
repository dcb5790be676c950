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

// While the driver is running, new virtual functions are published, and removed virtual functions are withdrawn.
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
			want := map[string]int64{"nic0-passthrough": 0}
			for i := range count {
				want[fmt.Sprintf("nic0v%d-vf", i)] = linkSpeed / int64(count) / 100 * 100 // the share in whole steps
			}
			err := n.until(t.Context(), fmt.Sprintf("a NIC with %d virtual functions is published", count),
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

// If a NIC is offered as a whole while one of its virtual functions is in use, the NIC cannot be allocated until the
// function is free. This applies even if the function was published without counters when it was allocated, because at
// that time, there was nothing to exclude.
func TestNICsAreOfferedAsAWholeUnderClaims(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		passthrough := use{name: "passthrough", plugin: "host-device", exclusive: true}
		vf := use{name: "vf", plugin: "sriov", function: true}
		n := p.publish(t, "whole", record(t, machine(2, 2)), []v1alpha1.DeviceExposurePolicy{vf.policy(t)},
			p.encodings...)
		n.offers(t, 4)
		asks := func(name, class, nic string) string {
			t.Helper()
			pod, err := n.pod(t.Context(), name, p.templates, claim(request{class: class, nic: nic}))
			if err != nil {
				t.Fatal(err)
			}
			return pod
		}
		gets := func(pod, device string) {
			t.Helper()
			if devices, err := n.allocated(t.Context(), pod); err != nil || names(devices) != device {
				t.Fatalf("pod %s got %q, want %q: %v", pod, names(devices), device, err)
			}
		}
		waits := func(pod string) {
			t.Helper()
			if _, err := n.outcome(t.Context(), pod, false); err != nil {
				t.Fatalf("pod %s should remain pending: %v", pod, err)
			}
		}
		function := asks("function", "sriov", nicName(0))
		gets(function, "nic0v0-vf")

		if err := p.apply(t.Context(), n.owned(t, []v1alpha1.DeviceExposurePolicy{passthrough.policy(t)})); err != nil {
			t.Fatal(err)
		}
		n.offers(t, 6)
		first := asks("first", "host-device", nicName(0))
		waits(first)
		gets(asks("free", "host-device", nicName(1)), "nic1-passthrough") // the scheduler now has the new devices
		second := asks("second", "host-device", nicName(0))
		waits(second)
		waits(asks("other", "sriov", nicName(1)))
		if v, err := n.verdict(first); v == scheduled { // it may have been rejected before the NIC was cached
			t.Fatalf("pod %s got a NIC while one of its virtual functions was in use: %v", first, err)
		}
		for _, pod := range []string{second, function} {
			if err := n.release(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		gets(first, "nic0-passthrough")
	})
}

// become atomically repoints the symlink "recording" at a machine with the given number of virtual functions.
func become(t *testing.T, recording string, count int) {
	t.Helper()
	m := machine(1, count)
	if count == 0 {
		m.VirtualFunctions("0000:01:00.0") // still a physical function
	}
	point(t, recording, m)
}

// point atomically repoints the symlink "recording" at a machine.
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
