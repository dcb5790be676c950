package nodestate

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The JSON form is a contract between versions: renaming a field breaks netdra or makes the journal of an earlier
// driver unreadable.
func TestRoundTrip(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		value any
		empty any
		wire  string
	}{
		"state": {
			&State{
				Node: "n", Synced: true, NodeFound: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
				Problems: []Problem{{Source: "slices", Text: "bad"}}, NotReady: []string{"NRI"},
				CNIPlugins: []string{"macvlan"},
			}, &State{},
			`{"node":"n","synced":true,"nodeFound":true,"addresses":["10.0.0.1"],"versions":{"kubelet":"",` +
				`"runtime":"","kernel":""},` +
				`"settings":{"pluginDir":"","registrarDir":"","cniDirs":null,"netnsDir":"","cdiDir":"",` +
				`"logDir":"","nriSocket":""},` +
				`"notReady":["NRI"],"problems":[{"source":"slices","text":"bad"}],"nriTimeout":0,` +
				`"cniPlugins":["macvlan"],"topologies":null,"heard":true}`,
		},
		"claim": {
			&Claim{ClaimRecord: ClaimRecord{Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "u"},
				PreparedAt: since,
				Consumers:  []Consumer{{PodUID: "p", Position: 1}}}, Unused: true}, &Claim{},
			`{"claim":{"namespace":"ns","name":"c","uid":"u"},"preparedAt":"2026-01-02T03:04:05Z",` +
				`"consumers":[{"podUID":"p","position":1}],` +
				`"devices":null,"plans":null,"unused":true,"forsaken":true}`,
		},
		"sandbox": {
			&Sandbox{ID: "s", Pod: executor.Pod{Namespace: "ns", Name: "p", UID: "p"}, Claims: []string{"u"},
				State: SandboxReady, Since: since, Pin: "/pin",
				Interfaces: []Interface{{ClaimUID: "u", Pool: "n/eth0", Device: "eth0", Interface: "net1",
					Missing: "net1"}}}, &Sandbox{},
			`{"id":"s","pod":{"namespace":"ns","name":"p","uid":"p"},"claims":["u"],"state":"ready",` +
				`"since":"2026-01-02T03:04:05Z","pin":"/pin",` +
				`"interfaces":[{"claimUID":"u","pool":"n/eth0","device":"eth0","interface":"net1","missing":"net1"}]}`,
		},
		"orphan": {
			&Orphan{Kind: nodeapi.GateSpec, Path: "/f", Claim: "u", Error: "busy"}, &Orphan{},
			`{"kind":"CDI spec","path":"/f","claim":"u","error":"busy"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(test.value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.wire, string(data)); diff != "" {
				t.Errorf("wrong wire format (-want +got):\n%s", diff)
			}
			if err := json.Unmarshal(data, test.empty); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.value, test.empty,
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("wrong value after a round trip (-want +got):\n%s", diff)
			}
		})
	}
}

// netdra may be newer than the driver on a node.
func TestAnswersOfEarlierDrivers(t *testing.T) {
	var state State
	var claim Claim
	err := errors.Join(json.Unmarshal([]byte(`{"node":"n","heard":true}`), &state),
		json.Unmarshal([]byte(`{"claim":{"uid":"u"},"forsaken":true}`), &claim))
	if err != nil || state.Node != "n" || !state.Synced || claim.Claim.UID != "u" || !claim.Unused {
		t.Errorf("got state %+v, claim %+v, error %v", state, claim, err)
	}
}

// nodeapi does not import Kubernetes packages and therefore repeats the driver's name.
func TestNameOfTheDriver(t *testing.T) {
	if want := chainapi.DriverName + "-u.json"; nodeapi.GateName("u") != want {
		t.Errorf("gate name = %s, want %s", nodeapi.GateName("u"), want)
	}
}
