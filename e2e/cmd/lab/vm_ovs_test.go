package main

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

func TestKindOfMachine(t *testing.T) {
	for name, c := range map[string]struct {
		flags vmFlags
		want  vm.Kind
		bad   bool
	}{
		"neither":      {want: vm.SRIOV},
		"RDMA":         {flags: vmFlags{rdma: rdmaShared}, want: vm.RDMA},
		"Open vSwitch": {flags: vmFlags{ovs: true}, want: vm.OVS},
		"both":         {flags: vmFlags{ovs: true, rdma: rdmaShared}, bad: true},
	} {
		if kind, err := c.flags.kind(); kind != c.want || (err != nil) != c.bad {
			t.Errorf("%s: kind returned unexpected %d, %v", name, kind, err)
		}
	}
}
