package cnichain

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestRDMADevicesOfADevice(t *testing.T) {
	host := []RDMADevice{
		{Index: 0, Name: "mlx5_0", Links: []int{3}, PCIAddress: "0000:03:00.0"},
		{Index: 1, Name: "mlx5_2", PCIAddress: "0000:03:00.2"}, // its link is in a pod
		{Index: 2, Name: "mlx5_bond_0", Links: []int{9}, PCIAddress: "0000:04:00.0"},
		{Index: 3, Name: "rxe0", Links: []int{12}},
	}
	for name, test := range map[string]struct {
		device Device
		want   string
	}{
		"by PCI address":                 {Device{PCIAddress: "0000:03:00.2"}, "mlx5_2"},
		"by link":                        {Device{Baseline: Baseline{Index: 12, Kind: "veth"}}, "rxe0"},
		"bond":                           {Device{Baseline: Baseline{Index: 9, Kind: "bond"}}, "mlx5_bond_0"},
		"VLAN of a port":                 {Device{Baseline: Baseline{Index: 20, Kind: KindVLAN, Parent: 3}}, "mlx5_0"},
		"VLAN with one of its own":       {Device{Baseline: Baseline{Index: 12, Kind: KindVLAN, Parent: 3}}, "rxe0"},
		"macvlan has not its parent's":   {Device{Baseline: Baseline{Index: 20, Kind: "macvlan", Parent: 3}}, ""},
		"another function of the card":   {Device{PCIAddress: "0000:03:00.7"}, ""},
		"virtual without known baseline": {Device{IfName: "eth0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			names := ""
			for _, rdma := range RDMADevicesOf(&test.device, host) {
				names += rdma.Name
			}
			if names != test.want {
				t.Errorf("it has %q, want %q", names, test.want)
			}
		})
	}
}

func TestCompileRDMA(t *testing.T) {
	const moves = `[{name: link, type: host-device, selector: {cel: "true"}, rdma: {}, limits: {lockedMemory: 1Gi}}]`
	const stays = `[{name: link, type: macvlan, selector: {cel: "true"}, rdma: {}}]`
	devices := []RDMADevice{{Index: 4, Name: "mlx5_0", Links: []int{7}}}
	for name, test := range map[string]struct {
		steps, mode string
		rdma        []RDMADevice
		change      func(*Device)
		wrong       string
	}{
		"exclusive, moves":  {steps: moves, mode: RDMAExclusive, rdma: devices},
		"shared, moves":     {steps: moves, mode: RDMAShared, rdma: devices},
		"shared, stays":     {steps: stays, mode: RDMAShared, rdma: devices},
		"shared by claims":  {steps: stays, mode: RDMAShared, rdma: devices, change: func(d *Device) { d.Exclusive = false }},
		"no RDMA":           {steps: moves, wrong: "it has none; load the RDMA module"},
		"exclusive, stays":  {steps: stays, mode: RDMAExclusive, rdma: devices, wrong: `"rdma system set netns shared"`},
		"baseline not read": {steps: moves, change: func(d *Device) { d.BootID = "" }},
		"exclusive, two links on one RDMA device": {steps: moves, mode: RDMAExclusive,
			rdma: []RDMADevice{{Name: "mlx4_0", Links: []int{7, 8}}}, wrong: "other links of the node use it"},
		"exclusive, VLAN of a port": {steps: moves, mode: RDMAExclusive,
			rdma: []RDMADevice{{Name: "mlx5_0", Links: []int{6}}}, wrong: "other links of the node use it"},
	} {
		t.Run(name, func(t *testing.T) {
			device := deviceNamed("up0")
			device.BootID, device.Index, device.RDMA, device.RDMANetns = "boot", 7, test.rdma, test.mode
			if test.change != nil {
				test.change(&device)
			}
			plan, problems := Compile(topology(t, test.steps),
				Binding{Schemas: DefaultSchemas(), Plugins: plugins("host-device", "macvlan"),
					Devices: []RootDevice{{Step: "link", Device: device}}})
			if test.wrong != "" {
				if text := problems.ToAggregate(); text == nil || !contains(text.Error(), test.wrong, "spec.steps[0].rdma") {
					t.Errorf("problems are %v, want %q", text, test.wrong)
				}
				return
			}
			if len(problems) > 0 || plan.Steps[0].RDMA == nil || len(plan.Steps[0].Device.Moved) > 0 {
				t.Errorf("the plan is %+v with problems %v", plan, problems)
			}
		})
	}
}

func TestLockedMemory(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "unlimited": Unlimited, "8Gi": 8 << 30, "64k": 64000, "1": 1,
	} {
		bytes, err := LockedMemory(&v1alpha1.StepLimits{LockedMemory: text})
		if err != nil || bytes != want {
			t.Errorf("%q is %d, %v, want %d", text, bytes, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "much", "8GB", "1e30", "infinity"} {
		if bytes, err := LockedMemory(&v1alpha1.StepLimits{LockedMemory: text}); err == nil {
			t.Errorf("%q is %d", text, bytes)
		}
	}
	if bytes, err := LockedMemory(nil); bytes != 0 || err != nil {
		t.Errorf("no limits are %d, %v", bytes, err)
	}
}
