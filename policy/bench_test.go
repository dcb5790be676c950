package policy_test

import (
	"fmt"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// BenchmarkResolve measures the cost of a decision, which is made on every change, for 200 devices and 10 policies.
func BenchmarkResolve(b *testing.B) {
	facts := discovery.Facts{}
	for i := range 200 {
		facts.Devices = append(facts.Devices, discovery.Device{Name: discovery.IfName(fmt.Sprintf("link%03d", i)),
			Type: discovery.TypeNIC, VFIndex: discovery.None, NUMANode: discovery.None, VLANID: discovery.None})
	}
	policies := make([]v1alpha1.DeviceExposurePolicy, 10)
	for i := range policies {
		policies[i].Name = fmt.Sprintf("policy%d", i)
		policies[i].Spec = v1alpha1.DeviceExposurePolicySpec{
			Priority: 100, Action: v1alpha1.ActionExpose,
			Selector: v1alpha1.DeviceSelector{CEL: fmt.Sprintf(
				`device.attributes["dra.networking"].ifName.endsWith("%d")`, i,
			)},
			Exposure: &v1alpha1.Exposure{SupportedCNIPlugins: []v1alpha1.CNIPlugin{{Name: "host-device",
				Exclusive: true}}},
		}
	}
	var again policy.Resolver
	for name, resolver := range map[string]func() *policy.Resolver{
		"new":   func() *policy.Resolver { return new(policy.Resolver) },
		"again": func() *policy.Resolver { return &again }, // as in a running driver
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decision, err := resolver().Resolve(b.Context(), facts, policies, policy.Node{Name: "n"})
				if err != nil || len(decision.Devices) != 200 || len(decision.Devices[0].Personas) != 1 {
					b.Fatalf("decision = %+v, %v, want 200 devices with one persona each", decision.Devices, err)
				}
			}
		})
	}
}
