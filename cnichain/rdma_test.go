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
		"another function of the NIC":    {Device{PCIAddress: "0000:03:00.7"}, ""},
		"virtual without known baseline": {Device{IfName: "eth0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			names := ""
			for _, rdma := range RDMADevicesOf(&test.device, host) {
				names += rdma.Name
			}
			if names != test.want {
				t.Errorf("RDMA devices = %q, want %q", names, test.want)
			}
		})
	}
}

func TestCheckRDMA(t *testing.T) {
	devices := []RDMADevice{{Index: 4, Name: "mlx5_0", Links: []int{7}}}
	for name, test := range map[string]struct {
		mode   string
		rdma   []RDMADevice
		change func(*PlanStep)
		wrong  string
	}{
		"exclusive, moves": {mode: RDMAExclusive, rdma: devices},
		"exclusive, not known": {mode: RDMAExclusive, rdma: devices,
			change: func(s *PlanStep) { s.Moves = false }},
		"shared, moves": {mode: RDMAShared, rdma: devices},
		"shared, stays": {mode: RDMAShared, rdma: devices, change: func(s *PlanStep) { s.Stays = true }},
		"shared by claims": {mode: RDMAShared, rdma: devices,
			change: func(s *PlanStep) { s.Device.Exclusive = false }},
		"gives none": {change: func(s *PlanStep) { s.RDMA = nil }},
		"no RDMA":    {wrong: "it has none; load the RDMA module"},
		"exclusive, stays": {mode: RDMAExclusive, rdma: devices, wrong: "netns shared",
			change: func(s *PlanStep) { s.Stays = true }},
		"exclusive, by claims": {mode: RDMAExclusive, rdma: devices, wrong: "netns shared",
			change: func(s *PlanStep) { s.Device.Exclusive = false }},
		"exclusive, two links": {mode: RDMAExclusive, rdma: []RDMADevice{{Name: "mlx4_0", Links: []int{7, 8}}},
			wrong: "other links"},
		"exclusive, no answer": {mode: RDMAExclusive, rdma: []RDMADevice{{Name: "mlx5_0", LinksUnknown: true}},
			wrong: "does not report"},
		"shared, no answer": {mode: RDMAShared, rdma: []RDMADevice{{Name: "mlx5_0", LinksUnknown: true}}},
		"exclusive, VLAN of a port": {mode: RDMAExclusive, rdma: []RDMADevice{{Name: "mlx5_0", Links: []int{6}}},
			wrong: "other links"},
	} {
		t.Run(name, func(t *testing.T) {
			device := deviceNamed("up0")
			device.Index = 7
			step := PlanStep{Moves: true, RDMA: &v1alpha1.StepRDMA{}, Device: &device}
			if test.change != nil {
				test.change(&step)
			}
			err := step.CheckRDMA(test.rdma, test.mode)
			if test.wrong == "" && err != nil || test.wrong != "" &&
				(err == nil || !contains(err.Error(), test.wrong)) {
				t.Errorf("error = %v, want %q", err, test.wrong)
			}
		})
	}
}

// The plan records how a plugin affects its device, since the schema may change while pods use the device.
func TestCompileRDMA(t *testing.T) {
	for cniType, want := range map[string][2]bool{"host-device": {true, false}, "macvlan": {false, true}, "mine": {}} {
		device := deviceNamed("up0")
		device.CNIs = []string{cniType}
		plan, problems := Compile(topology(t, `[{name: link, type: `+cniType+`, selector: {cel: "true"}, rdma: {}}]`),
			Binding{Schemas: DefaultSchemas(), Plugins: plugins(cniType),
				Devices: []RootDevice{{Step: "link", Device: device}}})
		if len(problems) > 0 || plan.Steps[0].RDMA == nil || plan.Steps[0].Moves != want[0] ||
			plan.Steps[0].Stays != want[1] {
			t.Errorf("%s: wrong plan %+v or problems %v", cniType, plan, problems)
		}
	}
}

func TestLockedMemory(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "unlimited": Unlimited, "8Gi": 8 << 30, "64k": 64000, "1": 1,
	} {
		bytes, err := LockedMemory(&v1alpha1.StepLimits{LockedMemory: text})
		if err != nil || bytes != want {
			t.Errorf("locked memory %q = %d, %v, want %d", text, bytes, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "much", "8GB", "1e30", "infinity"} {
		if bytes, err := LockedMemory(&v1alpha1.StepLimits{LockedMemory: text}); err == nil {
			t.Errorf("locked memory %q = %d, want an error", text, bytes)
		}
	}
	if bytes, err := LockedMemory(nil); bytes != 0 || err != nil {
		t.Errorf("locked memory without limits = %d, %v, want 0", bytes, err)
	}
}
