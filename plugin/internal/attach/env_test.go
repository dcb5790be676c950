package attach

import (
	"net"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// A container's environment variables describe the interfaces for the requests that the container names, but never
// those for another request, pod or sandbox.
func TestInterfacesInTheEnvironment(t *testing.T) {
	step := func(device, ifName, address string) executor.StepRecord {
		ip, subnet, err := net.ParseCIDR(address)
		if err != nil {
			t.Fatal(err)
		}
		subnet.IP = ip
		return executor.StepRecord{Claim: cnichain.Claim{UID: "a"}, IfName: ifName,
			Step: cnichain.PlanStep{Device: &cnichain.Device{Pool: "n/" + device, Name: device}},
			Merged: &types100.Result{
				Interfaces: []*types100.Interface{
					{Name: "host", Mtu: 1400},
					{Name: ifName, Mac: "02:00:00:00:00:01", Mtu: 9000, Sandbox: "/netns"}},
				IPs: []*types100.IPConfig{
					{Address: *subnet, Gateway: net.ParseIP("10.0.0.1")},
					{Address: *subnet, Gateway: net.ParseIP("10.0.0.1"), Interface: types100.Int(1)},
					{Address: *subnet, Gateway: net.ParseIP("10.9.9.9"), Interface: types100.Int(0)}}}}
	}
	variables := func(prefix, name, request, address string) []string {
		device := strings.Replace(name, "net", "eth", 1)
		return []string{prefix + "INTERFACE=" + name, prefix + "REQUEST=" + request, prefix + "MAC=02:00:00:00:00:01",
			prefix + "IPS=" + address, prefix + `JSON={"interface":"` + name + `","request":"` + request +
				`","pool":"n/` + device + `","device":"` + device + `","mac":"02:00:00:00:00:01","mtu":9000,"ips":["` +
				address + `"],"gateways":["10.0.0.1"]}`}
	}
	first, second := step("eth1", "net1", "10.0.0.2/24"), step("eth2", "net2", "10.0.1.2/24")
	of1 := variables("DRA_NETWORK_NET1_", "net1", "data", "10.0.0.2/24")
	of2 := variables("DRA_NETWORK_NET2_", "net2", "mgmt", "10.0.1.2/24")
	devices := []claims.HeldDevice{{Request: "data", Pool: "n/eth1", Name: "eth1"},
		{Request: "mgmt", Pool: "n/eth2", Name: "eth2"}}
	for name, test := range map[string]struct {
		sandboxes [][]executor.StepRecord
		devices   []claims.HeldDevice
		request   string
		shareable bool
		want      []string
	}{
		"the whole claim": {sandboxes: [][]executor.StepRecord{{first, second}}, want: append(slices.Clone(of1), of2...)},
		"one request":     {sandboxes: [][]executor.StepRecord{{first, second}}, request: "mgmt", want: of2},
		"an alternative of a request": {sandboxes: [][]executor.StepRecord{{first, second}}, request: "data",
			devices: []claims.HeldDevice{{Request: "data/fast", Pool: "n/eth1", Name: "eth1"}}, want: of1},
		"a claim for several pods": {sandboxes: [][]executor.StepRecord{{first}}, shareable: true},
		"two sandboxes with other addresses": {request: "data",
			sandboxes: [][]executor.StepRecord{{first}, {step("eth1", "net1", "10.0.0.3/24")}}, want: of1[:3]},
		"names that variables can't tell apart": {sandboxes: [][]executor.StepRecord{
			{step("eth1", "net-1", "10.0.0.2/24"), step("eth2", "net.1", "10.0.1.2/24")}}},
		"nothing attached": {sandboxes: nil},
	} {
		record := claims.Record{Claim: cnichain.Claim{UID: "a"}, Devices: devices, Shareable: test.shareable}
		if test.devices != nil {
			record.Devices = test.devices
		}
		have := interfaceEnv(&record, test.sandboxes, Part{ClaimUID: "a", Request: test.request})
		if diff := cmp.Diff(test.want, have); diff != "" {
			t.Errorf("%s: wrong environment (-want +got):\n%s", name, diff)
		}
	}
}
