package host

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// A returned RDMA device is found by properties that the kernel preserves. Restore would rename a device that was found
// by mistake.
func TestReturnedRDMADeviceIsFound(t *testing.T) {
	const ours, theirs = "0000:03:00.2", "0000:03:00.3"
	moved := cnichain.RDMADevice{Index: 0, Name: "mlx5_0", PCIAddress: ours}
	for name, test := range map[string]struct {
		moved  cnichain.RDMADevice
		onHost []cnichain.RDMADevice
		want   string
	}{
		"under its name": {moved, []cnichain.RDMADevice{{Index: 0, Name: "mlx5_0", PCIAddress: ours}},
			"mlx5_0"},
		"renamed by the kernel": {moved, []cnichain.RDMADevice{{Index: 0, Name: "ibdev0", PCIAddress: ours}},
			"ibdev0"},
		"rebound": {moved, []cnichain.RDMADevice{{Index: 9, Name: "mlx5_4", PCIAddress: ours}},
			"mlx5_4"},
		"its index is another's": {moved, []cnichain.RDMADevice{{Index: 0, Name: "mlx5_1", PCIAddress: theirs}}, ""},
		"all modules reloaded": {moved, []cnichain.RDMADevice{{Index: 0, Name: "mlx5_1", PCIAddress: theirs},
			{Index: 1, Name: "mlx5_0", PCIAddress: ours}}, "mlx5_0"},
		"record without its PCI address": {cnichain.RDMADevice{Index: 0, Name: "mlx5_0"},
			[]cnichain.RDMADevice{{Index: 0, Name: "ibdev0", PCIAddress: ours}}, "ibdev0"},
		"nowhere": {moved, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			device := cnichain.Device{PCIAddress: ours, Moved: []cnichain.RDMADevice{test.moved}}
			found := ""
			if rdma := findReturned(&device, test.moved, test.onHost); rdma != nil {
				found = rdma.Name
			}
			if found != test.want {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}
