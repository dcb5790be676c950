package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
)

func TestCountsAndProblems(t *testing.T) {
	page := liveNode(t).page()
	wantCounts := []count{{2, "problems", true}, {16, "devices", false}, {8, "free", false}, {5, "in use", false},
		{2, "blocked", false}, {1, "unavailable", true}, {3, "hidden", false}, {5, "claims", false}}
	if diff := cmp.Diff(wantCounts, page.Counts()); diff != "" {
		t.Errorf("wrong counts (-want +got):\n%s", diff)
	}
	var got []string
	for _, p := range page.Problems {
		got = append(got, string(p.Level)+" "+p.Where)
	}
	want := []string{"fail 5f1c0ffee0000004/shop-gone/port/0", "warn sandbox 5f1c0ffee0000003"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong problems (-want +got):\n%s", diff)
	}
}

// Problems from all sources are included unless doctor has already reported them. A problem with a device is also shown
// in the device's row.
func TestOtherProblems(t *testing.T) {
	node := nodeOf(t, discoverytest.ReferenceNode(), "reference-node")
	node.Snapshot.Facts.Problems = []discovery.Problem{{Device: "eno1", Message: "cannot be read"},
		{Message: "no devlink"}}
	node.Snapshot.Facts.Orphans = []discovery.Device{{PCIAddress: "0000:05:00.2"}}
	node.Snapshot.Decision.Problems = []policy.Problem{{Policy: "pf0-vfs", Message: "is wrong"},
		{Policy: "pf0-vfs", Device: "eno1", Message: "does not fit"}}
	node.Snapshot.Result.Problems = []policy.Problem{{Device: "br-data", Message: "has a long name"},
		{Message: "too many"}}
	node.Findings = []doctor.Finding{{Level: doctor.Fail, What: "the node offers too many devices"}}
	page := node.page()
	var got []string
	for _, p := range page.Problems {
		got = append(got, p.What)
	}
	want := []string{
		"the node offers too many devices", "policy pf0-vfs: is wrong", "policy pf0-vfs: device eno1: does not fit",
		"device br-data: has a long name", "eno1: cannot be read", "no devlink",
		"virtual function 0000:05:00.2 has no name and is not offered: the interface of its physical function is " +
			"not on the node, or does not list it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong problems (-want +got):\n%s", diff)
	}
	if why := rowsOf(page)["br-data"].Problems; !slices.Contains(why, "device br-data: has a long name") {
		t.Errorf("br-data: got problems %v, want the long name", why)
	}
}

// rowsOf returns all rows on a page, keyed by device.
func rowsOf(p page) map[string]row {
	rows := map[string]row{}
	for _, a := range p.Details.Areas {
		for _, some := range append(a.Functions, a) {
			for _, r := range some.Rows {
				rows[r.Device] = r
			}
		}
	}
	return rows
}

// A device's row shows the state of each of its entries and, if the device is hidden, the reason.
func TestRows(t *testing.T) {
	rows := rowsOf(liveNode(t).page())
	for device, want := range map[string][]string{
		"enp3s0f0": {nodeclient.InUse, nodeclient.Blocked}, "enp3s0f0v0": {nodeclient.InUse},
		"enp3s0f0v1": {nodeclient.Free}, "enp3s0f1": {nodeclient.Blocked}, "enp3s0f1v3": {nodeclient.Quarantined},
		"eno1": {hidden}, "br-int": {hidden}, "br-data": {nodeclient.InUse},
	} {
		if diff := cmp.Diff(want, rows[device].States()); diff != "" {
			t.Errorf("wrong states of %s (-want +got):\n%s", device, diff)
		}
	}
	if want, got := "policy exclude-management excludes it: the expression is true", rows["eno1"].HiddenBy(); got != want {
		t.Errorf("eno1 is hidden by %s, want %s", got, want)
	}
	for _, want := range []string{"PCI 0000:03:00.0", "SPEED 100000", "DRIVER mlx5_core", "VFS 8/8"} {
		if !slices.Contains(rows["enp3s0f0"].Facts, want) {
			t.Errorf("the facts lack %q, got %q", want, rows["enp3s0f0"].Facts)
		}
	}
}

// A device without a working plugin is marked as unusable; otherwise, it would look free.
func TestUnusableDevices(t *testing.T) {
	node := liveNode(t)
	node.Snapshot.Answers.State.CNIPlugins = []string{"macvlan", "bridge"}
	node.refresh()
	rows := rowsOf(node.page())
	for device, want := range map[string]string{"enp3s0f0v0": nodeclient.InUse, "enp3s0f0v1": nodeclient.Unusable,
		"enp3s0f1v3": nodeclient.Quarantined} {
		if got := rows[device].States(); got[0] != want {
			t.Errorf("device %s is %s, want %s", device, got, want)
		}
	}
}

// Claims with failures come first. The calls for an earlier claim with the same name are not shown.
func TestClaims(t *testing.T) {
	type short struct {
		Name, State string
		Results     []string
	}
	var got []short
	for _, c := range liveNode(t).page().Details.Claims {
		found := short{Name: c.Name, State: c.State}
		for _, timeline := range c.Timelines {
			for _, cells := range timeline.Rows[1:] {
				found.Results = append(found.Results, strings.Join(cells[2:], " "))
			}
		}
		got = append(got, found)
	}
	want := []short{
		{"db-net", "failed", []string{"port ADD bridge 22 ms failed: no IP addresses available in range set: " +
			"10.1.0.1-10.1.0.254", "port DEL bridge 6 ms ok"}},
		{"late-net", "prepared", []string{"port ADD bridge 12 ms ok: net1 10.1.0.9/24",
			"knobs ADD tuning 3 ms failed: no such knob", "knobs DEL tuning 2 ms ok", "port DEL bridge 7 ms ok"}},
		{"store-bond", "attached", []string{"left ADD sriov 31 ms ok: left 10.3.0.5/24", "right ADD sriov 29 ms ok",
			"bond ADD bond 8 ms ok: bond0 10.3.0.6/24", "vlan ADD vlan 5 ms ok: vlan7 10.7.0.6/24"}},
		{"waiting", "prepared", nil},
		{"web-net", "attached", []string{"uplink ADD macvlan 13 ms ok: net1 10.2.0.5/24", "tune ADD tuning 4 ms ok"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong claims (-want +got):\n%s", diff)
	}
}

// A lost interface is reported for both the claim and the device. For a pod, errors from both attaching and detaching
// are reported.
func TestLostInterfaces(t *testing.T) {
	node := liveNode(t)
	boxes := node.Snapshot.Answers.Sandboxes
	boxes[1].Interfaces = []nodestate.Interface{{ClaimUID: "data-store-bond", Pool: "worker-1/enp3s0f1",
		Device: "enp3s0f1v0", Interface: "bond0", Missing: "right"}}
	boxes[2].State, boxes[2].DetachFailure = nodestate.SandboxDetaching, "no plugin"
	node.refresh()
	page := written(t, node)
	for _, want := range []string{"interface right is no longer in pod", "and it could not be undone yet: no plugin"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := rowsOf(node.page())["enp3s0f1v0"].States(); got[0] != nodeclient.Lost {
		t.Errorf("the device is %s, want lost", got)
	}
	if first := node.page().Details.Claims[0]; first.Name != "store-bond" || !first.Bad {
		t.Errorf("the first claim is %s in state %s, want store-bond, marked as bad", first.Name, first.State)
	}
}

// Every device appears on the page exactly once: in its area or below its physical function.
func TestMachine(t *testing.T) {
	for name, host := range map[string]*discoverytest.Host{
		"reference": discoverytest.ReferenceNode(), "switchdev": discoverytest.Switchdev(),
		"enslaved":  discoverytest.EnslavedFunction(),
		"odd names": discoverytest.OddNames(), "virtio": discoverytest.Virtio(),
		"without PCI": discoverytest.WithoutPCI(), "big": discoverytest.Machine(3, 8),
	} {
		node := nodeOf(t, host, "reference-node")
		var shown, want []string
		for _, a := range node.page().Details.Areas {
			for _, some := range append(a.Functions, a) {
				for _, r := range some.Rows {
					shown = append(shown, r.Device)
				}
			}
		}
		for i := range node.Snapshot.Facts.Devices {
			want = append(want, string(node.Snapshot.Facts.Devices[i].Name))
		}
		slices.Sort(shown)
		slices.Sort(want)
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("%s: devices and page differ (-devices +page):\n%s", name, diff)
		}
	}
	var titles []string
	for _, a := range nodeOf(t, discoverytest.Examples()["example9"], "example9").page().Details.Areas {
		titles = append(titles, a.Title)
	}
	if diff := cmp.Diff([]string{"NUMA node 0, PCIe root pci0000:00", "NUMA node 1, PCIe root pci0000:00"},
		titles); diff != "" {
		t.Errorf("wrong areas (-want +got):\n%s", diff)
	}
}

// TestNodePages compares entire pages with files in testdata.
func TestNodePages(t *testing.T) {
	for name, node := range map[string]*fixture{"live": liveNode(t),
		"files": nodeOf(t, discoverytest.ReferenceNode(), "reference-node")} {
		path, got := filepath.Join("testdata", name+".html"), written(t, node)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got); -update writes it:\n%s", path, diff)
		}
	}
}

func written(t *testing.T, node *fixture) string {
	t.Helper()
	text, err := node.page().write()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
