package policy_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// In this example, one policy offers every NIC, and another hides the NIC that carries the node's traffic.
func ExampleResolve() {
	facts := discovery.Facts{Devices: []discovery.Device{
		{Name: "eno1", Type: discovery.TypeNIC, DefaultRoute: true},
		{Name: "eth1", Type: discovery.TypeNIC},
	}}
	nics := v1alpha1.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "nics"},
		Spec: v1alpha1.DeviceExposurePolicySpec{
			Selector: v1alpha1.DeviceSelector{CEL: `device.attributes["dra.networking"].type == "nic"`},
			Exposure: &v1alpha1.Exposure{SupportedCNIPlugins: []v1alpha1.CNIPlugin{{Name: "host-device", Exclusive: true}}},
		},
	}
	infrastructure := v1alpha1.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "infrastructure"},
		Spec: v1alpha1.DeviceExposurePolicySpec{
			Selector: v1alpha1.DeviceSelector{CEL: `device.attributes["dra.networking"].defaultRoute`},
			Action:   v1alpha1.ActionExclude,
		},
	}
	decision := policy.Resolve(facts, []v1alpha1.DeviceExposurePolicy{nics, infrastructure}, policy.Node{Name: "worker-1"})
	for _, d := range decision.Devices {
		fmt.Printf("%s: %d entries\n", d.Device.Name, len(d.Personas))
		for _, reason := range d.Reasons {
			fmt.Println("  ", reason)
		}
	}
	// Output:
	// eno1: 0 entries
	//    policy infrastructure: excludes: the expression is true
	//    policy nics: lost: policy infrastructure excludes the device
	// eth1: 1 entries
	//    policy infrastructure: no match: the expression is false
	//    policy nics: exposes: the expression is true
}
