package scheduler

import (
	"fmt"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// record writes a recording of a machine in netdra's format, and returns its path.
func record(t *testing.T, machine *discoverytest.Host) string {
	t.Helper()
	dir := t.TempDir()
	if err := machine.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// machine returns a machine with 100 Gbit/s NICs, each with the given number of virtual functions. If functions is 0,
// the NICs do not support virtual functions.
func machine(count, functions int) *discoverytest.Host {
	h := discoverytest.NewHost()
	for i := range count {
		address := fmt.Sprintf("0000:%02x:00.0", i+1)
		h.Function(address)
		h.NIC(nicName(i), address)
		var addresses []string
		for j := range functions {
			addresses = append(addresses, fmt.Sprintf("0000:%02x:%02x.%d", i+1, 1+j/8, j%8))
		}
		if functions > 0 {
			h.VirtualFunctions(address, addresses...)
		}
		for j, a := range addresses {
			h.NIC(fmt.Sprintf("%sv%d", nicName(i), j), a)
		}
	}
	return h
}

func nicName(i int) string { return fmt.Sprintf("nic%d", i) }
