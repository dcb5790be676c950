package report

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

var update = flag.Bool("update", false, "write the golden pages")

// someCluster returns the answers from five nodes: one with devices in every state, one that does not answer, one that
// offers no devices, one with only risks, and one without problems.
func someCluster() []remote.Of[answer] {
	slots := func(used int) []nodeclient.Counter {
		return []nodeclient.Counter{{Name: "macvlans", Used: fmt.Sprint(used), Total: "64"}}
	}
	held := func(claim string, pods ...string) []nodeclient.Holder {
		return []nodeclient.Holder{{Claim: claim, Pods: pods}}
	}
	busy := answer{
		devices: []nodeclient.Device{
			{Name: "enp3s0f0-macvlan", Type: "pf", Use: "shared", State: nodeclient.InUse, Counters: slots(3),
				Holders: []nodeclient.Holder{{Claim: "shop/web-net", Pods: []string{"web-0", "web-1"}},
					{Claim: "shop/cache-net", Pods: []string{"cache-0"}}}},
			{Name: "enp3s0f0-passthrough", Type: "pf", Use: "exclusive", State: nodeclient.Blocked,
				Why: "enp3s0f0-macvlan is in use"},
			{Name: "enp3s0f0v0", Type: "vf", Use: "exclusive", State: nodeclient.InUse,
				Holders: held("ai/train-a", "worker-0")},
			{Name: "enp3s0f0v1", Type: "vf", Use: "exclusive", State: nodeclient.Free},
			{Name: "enp3s0f0v2", Type: "vf", Use: "exclusive", State: nodeclient.Quarantined,
				Why: "the driver of its physical function refuses VLAN 0: operation not supported"},
			{Name: "enp3s0f0v3", Type: "vf", Use: "exclusive", State: nodeclient.Gone,
				Holders: held("ai/train-b", "worker-1")},
		},
		findings: []doctor.Finding{
			{Level: doctor.OK, Check: "socket", What: "the driver answers"},
			{Level: doctor.Fail, Check: "quarantine", What: "device enp3s0f0v2 has been quarantined since pod " +
				"shop/gone-0 ended",
				Where: "5f1c0ffee0000004/shop-gone/port/0",
				Why:   "the cleanup failed in 10 attempts: operation not supported",
				Do:    "fix the reported cause, then run: netdra release 5f1c0ffee0000004/shop-gone/port/0"},
			{Level: doctor.Warn, Check: "gone", What: "device enp3s0f0v3 no longer exists on the node",
				Where: "held by claim ai/train-b of pod worker-1",
				Why:   "these pods have lost this network, and no other claim can get the device",
				Do:    "restore the device, then delete these pods to attach them again"},
		},
	}
	risky := answer{
		devices: []nodeclient.Device{{Name: "ens1f0", Type: "nic", Use: "exclusive", State: nodeclient.Free}},
		findings: []doctor.Finding{{Level: doctor.Warn, Check: "others",
			What: "device ens1f0v0 (0000:18:02.0) has two owners: a device plugin also offers it",
			Why:  "the device may be allocated twice, since neither owner considers the allocations of the other",
			Do:   "remove it from the pool of the device plugin, or exclude it with a DeviceExposurePolicy"}},
	}
	var well answer
	for i := range 12 {
		well.devices = append(well.devices, nodeclient.Device{Name: fmt.Sprintf("ens2f0v%d", i), Type: "vf",
			Use: "exclusive", State: nodeclient.Free})
	}
	return []remote.Of[answer]{
		{Node: "rack-7-worker-1", Answer: busy},
		{Node: "rack-7-worker-2", Err: errors.New("cannot run netdra in pod dra-network/driver-x7k2p: " +
			"the container is not running; wait until it is Ready, or look at its log: kubectl -n dra-network logs " +
			"driver-x7k2p")},
		{Node: "rack-7-worker-3.a-long-name.of-a-domain.example.com", Answer: risky},
		{Node: "rack-8-worker-1"},
		{Node: "rack-8-worker-2", Answer: well},
	}
}

// hostile returns a node on which every string is either markup or wider than a phone's screen.
func hostile() []remote.Of[answer] {
	text := `"><img src=http://evil.test/x onerror=alert(1)><script>alert(2)</script>`
	wide := "a-name-without-an-end-"
	for range 4 {
		wide += wide
	}
	return []remote.Of[answer]{
		{Node: text, Answer: answer{
			devices: []nodeclient.Device{{Name: text, Type: text, Use: text, State: text, Why: wide,
				Holders:  []nodeclient.Holder{{Claim: wide, Pods: []string{text}}},
				Counters: []nodeclient.Counter{{Name: text, Used: text, Total: wide}}}},
			findings: []doctor.Finding{{Level: doctor.Fail, What: text, Where: wide, Why: wide, Do: text}},
		}},
		{Node: wide, Err: errors.New(text)},
	}
}

// The pages match the golden files, which were reviewed by hand. e2e/browser opens the same files.
func TestGoldenPages(t *testing.T) {
	for name, answers := range map[string][]remote.Of[answer]{
		"cluster": someCluster(), "hostile": hostile(),
		"well": {{Node: "n1", Answer: answer{devices: []nodeclient.Device{{Name: "eth1", Type: "nic", Use: "shared",
			State: nodeclient.Free}}}}},
	} {
		have, err := clusterPage(answers, time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)).write()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(path, have, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
