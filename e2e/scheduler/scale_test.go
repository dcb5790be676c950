package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// On a node with eight NICs with 128 virtual functions each, the driver publishes all of them. If a link flaps, the
// driver writes slices only once. After a change, it writes only the slices in the changed pool, and then returns the
// memory to the kernel.
func TestThousandDevices(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		// The memory limit is in KiB. A computation needs 80 MiB, of which 30 MiB (or 36 MiB after other tests) remain
		// in use.
		const nics, functions, most = 8, 128, 50 << 10
		m := machine(nics, functions)
		recording := filepath.Join(t.TempDir(), "recording")
		point(t, recording, m)
		policies := []v1alpha1.DeviceExposurePolicy{
			use{name: "passthrough", plugin: "host-device", exclusive: true}.policy(t), use{name: "vf", plugin: "sriov",
				function: true}.policy(t),
		}
		n := p.publish(t, "thousand", recording, policies, p.encodings...)
		n.offers(t, nics*(1+functions))
		link, other := m.Link(nicName(0)), m.Link(nicName(1))
		link.OperState, link.Carrier = "down", false
		point(t, recording, m)
		n.untilDevice(t, nicName(0)+"-passthrough", "is tainted", func(device *resourceapi.Device) bool {
			return len(device.Taints) > 0
		})
		before := n.versions(t)
		for _, back := range []bool{true, false} {
			link.OperState, link.Carrier = map[bool]string{true: "up", false: "down"}[back], back
			other.MTU++ // otherwise, the test could not detect when the driver has read the carrier
			point(t, recording, m)
			n.untilDevice(t, nicName(1)+"-passthrough", "has the new MTU", func(device *resourceapi.Device) bool {
				mtu := device.Attributes["dra.networking/mtu"].IntValue
				return mtu != nil && *mtu == int64(other.MTU)
			})
		}
		pool := n.name + "/" + nicName(1)
		for name, after := range n.versions(t) {
			if !strings.HasPrefix(name, pool+" ") && after != before[name] {
				t.Errorf("slice %s of an unchanged device was written", name)
			}
		}
		var anonymous, file int
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
			func(context.Context) (bool, error) {
				anonymous, file = n.resident(t)
				return anonymous <= most, nil // do not count the binary's pages, which are in the page cache
			})
		t.Logf("%d devices in %d slices; the driver has %d MiB of anonymous memory and %d MiB of its binary resident",
			nics*(1+functions), len(before), anonymous>>10, file>>10)
		if err != nil {
			t.Errorf("the driver has %d KiB of anonymous memory, want at most %d", anonymous, most)
		}
	})
}

// untilDevice waits until holds returns true for the named device as it is published.
func (n node) untilDevice(t *testing.T, name, what string, holds func(*resourceapi.Device) bool) {
	t.Helper()
	err := n.until(t.Context(), fmt.Sprintf("device %s %s", name, what), func() error {
		devices, err := n.devices()
		if device := devices[name]; err == nil && !holds(&device) {
			err = fmt.Errorf("the device is %v", device)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// versions returns the resource versions of the slices published for the node, by pool and slice name.
func (n node) versions(t *testing.T) map[string]string {
	t.Helper()
	slices, err := n.published()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, slice := range slices {
		versions[slice.Spec.Pool.Name+" "+slice.Name] = slice.ResourceVersion
	}
	return versions
}

// resident returns the resident memory used by the node's driver, in KiB, according to the host's /proc: anonymous
// memory, and pages that are mapped from files such as the binary.
func (n node) resident(t *testing.T) (anonymous, file int) {
	t.Helper()
	found, err := process.One(process.Runs("dra-network-driver"), process.HasArgument(func(argument string) bool {
		return argument == "--node-name="+n.name
	}))
	if err != nil {
		t.Fatalf("the driver of node %s: %v", n.name, err)
	}
	status, err := process.Status(found)
	if err != nil {
		t.Fatal(err)
	}
	anonymous, file = int(status.RssAnon>>10), int(status.RssFile>>10)
	return anonymous, file
}
