package attach

import (
	"errors"
	"net"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// If a pod requests an address that another pod got from the same step, the error names that pod. Unrelated pods are
// not named.
func TestFailuresNameWhoHasAnAddress(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	box := f.boxes.list()[0]
	held := box.attached[0]
	const mac, hostMAC = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	box.attached[0].Merged = &types100.Result{Interfaces: []*types100.Interface{
		{Name: "net1", Mac: "02:00:00:00:00:0A", Sandbox: "/run/netns/a"}, {Name: "veth1", Mac: hostMAC},
	}, IPs: []*types100.IPConfig{
		{Address: net.IPNet{IP: net.ParseIP("10.68.0.7"), Mask: net.CIDRMask(24, 32)}},
		{Address: net.IPNet{IP: net.ParseIP("fd00::7"), Mask: net.CIDRMask(64, 128)}}}}
	record := f.prepared("claim-b", "b", "up1")
	failure := func(step string) error {
		return &executor.StepError{Claim: record.Claim, Topology: held.Topology, Step: step, Type: "macvlan", Command: "ADD",
			Err: errors.New("not available")}
	}
	asking := func(addresses ...string) []claims.Record {
		step := &record.Plans[0].Steps[0]
		step.IPs, step.MAC = nil, ""
		for _, address := range addresses {
			if _, err := net.ParseMAC(address); err == nil {
				step.MAC = address
				continue
			}
			step.IPs = append(step.IPs, address)
		}
		return []claims.Record{record}
	}
	stranger := record.Claim
	stranger.Namespace = "other"
	name := held.Step.Name
	for _, test := range []struct {
		err       error
		addresses []string
		want      string
	}{
		{failure(name), []string{"10.68.0.7/16", "10.68.0.8/16"}, "; pod ns/a (claim ns/claim-a) has address 10.68.0.7"},
		{failure(name), []string{"fd00::7/64"}, "; pod ns/a (claim ns/claim-a) has address fd00::7"},
		{failure(name), []string{"10.68.0.8/24"}, ""},
		{failure(name), []string{mac}, "; pod ns/a (claim ns/claim-a) has address " + mac},
		{failure(name), []string{hostMAC}, ""},
		{failure(name), nil, ""},
		{failure("another"), []string{"10.68.0.7/24"}, ""},
		{&executor.StepError{Claim: stranger, Topology: held.Topology, Step: name, Type: "macvlan", Command: "ADD",
			Err: errors.New("not available")}, []string{"10.68.0.7/24"},
			`; a pod of another namespace has address 10.68.0.7; "netdra claims" on the node names it`},
		{errors.New("no step"), []string{"10.68.0.7/24"}, ""},
	} {
		got := f.boxes.withAddressHolders(test.err, asking(test.addresses...))
		if got.Error() != test.err.Error()+test.want || !errors.Is(got, test.err) {
			t.Errorf("%v: %v, want it to end with %q", test.addresses, got, test.want)
		}
	}
}
