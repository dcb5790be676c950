package discovery_test

import (
	"context"
	"fmt"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// Read the devices on a machine with a physical function, two virtual functions and a bridge. On a real machine, use
// the sources returned by discovery.Host.
func Example() {
	facts, err := discovery.Read(context.Background(), discoverytest.SRIOV().Sources())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range facts.Devices {
		fmt.Printf("%-10s %-12s %s\n", d.Name, d.PCIAddress, d.Type)
	}
	// Output:
	// br-data                 bridge
	// enp3s0f0   0000:03:00.0 pf
	// enp3s0f0v0 0000:03:00.2 vf
	// enp3s0f0v1 0000:03:00.3 vf
}
