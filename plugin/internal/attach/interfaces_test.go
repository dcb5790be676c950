package attach

import (
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// The status describes a device's final interface: the interface of the last step that depends on the device.
func TestNetworkDataIsThatOfTheLastStep(t *testing.T) {
	device := &cnichain.Device{Pool: "n/up0", Name: "up0"}
	result := func(name string, addresses ...string) *types100.Result {
		result := &types100.Result{Interfaces: []*types100.Interface{{Name: name, Mac: "02:00:00:00:00:01",
			Sandbox: "/x"}}}
		for _, address := range addresses {
			ip := &types100.IPConfig{Interface: types100.Int(0)}
			if err := ip.UnmarshalJSON([]byte(`{"interface":0,"address":"` + address + `"}`)); err != nil {
				t.Fatal(err)
			}
			result.IPs = append(result.IPs, ip)
		}
		return result
	}
	steps := []executor.StepRecord{
		{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{Device: device}, IfName: "net1",
			Merged: result("net1")},
		{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{DependsOn: []int{0}}, IfName: "bond0",
			Merged: result("bond0", "10.0.0.1/24", "10.0.0.1/24", "fd00::1/64")},
		{Claim: cnichain.Claim{UID: "other"}, Step: cnichain.PlanStep{Device: device}, IfName: "net2",
			Merged: result("net2")},
	}
	data := NetworkData(steps, "c", &claims.HeldDevice{Pool: "n/up0", Name: "up0"})
	if data == nil || data.InterfaceName != "bond0" || data.HardwareAddress != "02:00:00:00:00:01" ||
		strings.Join(data.IPs, " ") != "10.0.0.1/24 fd00::1/64" {
		t.Errorf("network data = %+v", data)
	}
	steps = []executor.StepRecord{{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{Device: device},
		IfName: "net1", DeviceNodes: []string{"/dev/infiniband/uverbs0"}, Merged: result("net1")}}
	if data := NetworkData(steps, "c", &claims.HeldDevice{Pool: "n/up0", Name: "up0"}); data == nil ||
		data.InterfaceName != "net1" {
		t.Errorf("network data of a device with RDMA devices = %+v, want interface net1", data)
	}
	bound := *device
	bound.BindTo = cnichain.DriverVFIO
	steps[0].Step.Device = &bound
	if data := NetworkData(steps, "c", &claims.HeldDevice{Pool: "n/up0", Name: "up0"}); data == nil ||
		data.InterfaceName != "" {
		t.Errorf("network data of a device without an interface = %+v, want no interface name", data)
	}
	if data := NetworkData(steps, "c", &claims.HeldDevice{Pool: "n/up1", Name: "up1"}); data != nil {
		t.Errorf("network data of another device = %+v, want none", data)
	}
}
