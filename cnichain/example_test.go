package cnichain_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// All problems in a topology are reported together, each with its field.
func ExampleValidate() {
	topology := &v1alpha1.NetworkTopology{}
	_ = yaml.Unmarshal([]byte(`
- {name: tune, type: tuning, dependOn: [uplink], config: {mtu: 9000}}
- {name: uplink, type: ../macvlan, selector: {cel: "true"}, config: {note: "{{ pod.colour }}"}}
`), &topology.Spec.Steps)
	for _, problem := range cnichain.Validate(topology, cnichain.DefaultSchemas()) {
		fmt.Println(problem)
	}
	// Output:
	// spec.steps[0].dependOn[0]: Invalid value: "uplink": step "tune" must come after "uplink": move it down, below the steps in its dependOn; if they depend on each other, remove one from dependOn
	// spec.steps[1].type: Invalid value: "../macvlan": must be the bare file name of a CNI plugin, for example macvlan
	// spec.steps[1].config: Invalid value: "uplink": config.note: cannot resolve template "{{ pod.colour }}": pod has no such field; use name, namespace, uid
}

// The configuration passed to a plan's plugins is known before the pod exists, except for values that depend on the
// pod.
func ExamplePreview() {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "lan"
	_ = yaml.Unmarshal([]byte(`[{name: uplink, type: macvlan, selector: {cel: "true"}, config: {mtu: "{{ device.mtu }}", note: "for {{ pod.name }}"}}]`), &topology.Spec.Steps)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Schemas: cnichain.DefaultSchemas(),
		Plugins: map[string]cnichain.Plugin{"macvlan": {Path: "/opt/cni/bin/macvlan", Versions: []string{"1.1.0"}}},
		Devices: []cnichain.RootDevice{{Step: "uplink", Device: cnichain.Device{
			Name: "eth1", IfName: "eth1", CNIs: []string{"macvlan"}, Attributes: map[string]any{"mtu": 9000},
		}}},
	})
	if len(problems) > 0 {
		fmt.Println(problems)
		return
	}
	config, err := cnichain.Preview(&plan.Steps[0])
	fmt.Println(string(config), err)
	// Output: {"master":"eth1","mtu":9000,"note":"for {{ pod.name }}"} <nil>
}
