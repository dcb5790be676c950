package slices_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// In this example, a NIC is offered to macvlan, which shares it, and to host-device, which takes the whole NIC. A
// shared counter keeps the two entries apart.
func ExampleBuild() {
	decision := policy.Decision{Devices: []policy.DeviceDecision{{
		Device: nic("eth1"),
		Personas: []policy.Persona{
			{Suffix: "-macvlan", Policy: "share", Plugins: []string{"macvlan"},
				Capacity: []policy.Capacity{{Name: "macvlans", Value: resource.MustParse("64")}}},
			{Suffix: "-whole", Policy: "whole", Plugins: []string{"host-device"}, Exclusive: true},
		},
	}}}
	result, err := draslices.Build("worker-1", decision, draslices.Features{CNIBinaries: sets.New("macvlan", "host-device")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(summary(result))
	// Output:
	// pool worker-1/eth1
	//   set eth1-counters: macvlans-capacity=64
	//   slice of 2
	//   device eth1-macvlan shared dra.networking/macvlans=64/1 <- macvlans-capacity=64
	//   device eth1-whole <- macvlans-capacity=64
	// remark policy share: capacity[macvlans] has no default request, so each claim takes 1: set requestPolicy.default
}
