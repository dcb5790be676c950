package scheduler

import (
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The driver publishes devices in the encoding that the other tests request. Without this test, the API server could
// drop unknown fields, or the driver could fall back to another encoding, without being noticed.
func TestEncodings(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		m := exclusionMachines()[0]
		n := p.publish(t, "encodings", record(t, machine(1, m.functions)), m.policies(t), p.encodings...)
		n.offers(t, m.entries())
		devices, err := n.devices()
		if err != nil {
			t.Fatal(err)
		}
		for name, device := range devices {
			flag := slices.ContainsFunc(slices.Collect(maps.Keys(device.Attributes)), isPluginFlag)
			list := device.Attributes["dra.networking/supportedCNIs"].StringValues != nil
			if want := slices.Contains(p.encodings, listAttributes); list != want || flag == want {
				t.Errorf("%s: published the CNI plugins as a list: %t, as booleans: %t", name, list, flag)
			}
			grouped := slices.ContainsFunc(device.ConsumesCounters, func(c resourceapi.DeviceCounterConsumption) bool {
				return len(c.CompatibilityGroups) > 0
			})
			if want := slices.Contains(p.encodings, compatibilityGroups); grouped != want {
				t.Errorf("%s has compatibility groups: %t, want %t", name, grouped, want)
			}
		}
	})
}

func isPluginFlag(name resourceapi.QualifiedName) bool {
	return strings.HasPrefix(string(name), v1alpha1.CNIDomain+"/")
}
