package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// A node with eight cards of 128 virtual functions each: it is published whole, what flaps is not written, a change
// writes the slices of its pool only, and the driver is small when it is at rest.
func TestThousandDevices(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		const cards, functions, most = 8, 128, 36 << 10 // KiB; 28 MiB where this was written
		m := machine(cards, functions)
		recording := filepath.Join(t.TempDir(), "recording")
		point(t, recording, m)
		policies := []v1alpha1.DeviceExposurePolicy{
			use{name: "passthrough", plugin: "host-device", exclusive: true}.policy(t), use{name: "vf", plugin: "sriov",
				function: true}.policy(t),
		}
		n := p.publish(t, "thousand", recording, policies, p.encodings...)
		n.offers(t, cards*(1+functions))
		before := n.versions(t)
		for i := range 4 {
			link := m.Link(cardName(0))
			link.OperState, link.Carrier = []string{"down", "up"}[i%2], i%2 == 1
			point(t, recording, m)
		}
		m.Link(cardName(1)).MTU = 9000
		point(t, recording, m)
		pool := n.name + "/" + cardName(1)
		err := n.until(t.Context(), "the change is published", func() error {
			devices, err := n.devices()
			if mtu := devices[cardName(1)+"-passthrough"].Attributes["dra.networking/mtu"].IntValue; err == nil &&
				(mtu == nil || *mtu != 9000) {
				err = fmt.Errorf("the MTU is %v", mtu)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, after := range n.versions(t) {
			if !strings.HasPrefix(name, pool+" ") && after != before[name] {
				t.Errorf("slice %s was written", name)
			}
		}
		var anonymous, file int
		err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
			func(context.Context) (bool, error) {
				anonymous, file = n.resident(t)
				return anonymous <= most, nil // pages of the file are the page cache's
			})
		t.Logf("%d devices in %d slices; the driver has %d MiB of its own resident, and %d MiB of its binary",
			cards*(1+functions), len(before), anonymous>>10, file>>10)
		if err != nil {
			t.Errorf("the driver has %d KiB of its own resident, more than %d", anonymous, most)
		}
	})
}

// versions are the resource versions of the node's slices, by "pool name".
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

// resident is the memory of the driver of the node, in KiB, from /proc of the host: its own, and pages of the binary.
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
