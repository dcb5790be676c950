package nodepage

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

var update = flag.Bool("update", false, "write the files in testdata")

func TestCountsAndProblems(t *testing.T) {
	page := Build(liveNode(t))
	wantCounts := []Count{{3, "problems", true}, {18, "devices", false}, {8, "free", false}, {5, "in use", false},
		{1, "blocked", false}, {1, "unavailable", true}, {3, "hidden", false}, {5, "claims", false}}
	if diff := cmp.Diff(wantCounts, page.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	wantProblems := []Problem{
		{Urgent: true, Where: "device enp3s0f1v3",
			What: "is quarantined: cleanup failed after 10 attempts since 2026-11-21 " +
				"12:00:00 UTC: device enp3s0f1v3: the driver of its physical function refuses VLAN 0: operation not " +
				"supported",
			ToDo: "fix the reported cause; the driver retries every five minutes, or immediately with: netdra " +
				"release 5f1c0ffee0000004/shop-gone/port/0; if the cleanup can never succeed, abandon it with " +
				"--forget"},
		{Urgent: true, Where: "pod shop/db-0",
			What: `attaching failed: step "port" (bridge) of topology data: no IP addresses available in ` +
				`range set: 10.1.0.1-10.1.0.254`,
			ToDo: "see the chain below; for the input and output of the plugins, run: netdra trace shop/db-net " +
				"--calls"},
		{Urgent: true, Where: "pod shop/late-0", What: "the last attempt to attach failed, and its sandbox has " +
			"ended: ADD of step knobs (tuning): no such knob",
			ToDo: "see the chain below; for the input and output of the plugins, run: netdra trace shop/late-net " +
				"--calls"},
	}
	if diff := cmp.Diff(wantProblems, page.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// All sources of problems are included. A device's problem is also shown in its row.
func TestOtherProblems(t *testing.T) {
	node := nodeOf(t, discoverytest.ReferenceNode(), "reference-node")
	node.Facts.Problems = []discovery.Problem{{Device: "eno1", Message: "cannot be read"}, {Message: "no devlink"}}
	node.Facts.Orphans = []discovery.Device{{PCIAddress: "0000:05:00.2"}, {PCIAddress: "0000:05:00.3"}}
	node.Decision.Problems = []policy.Problem{{Policy: "pf0-vfs", Message: "is wrong"},
		{Policy: "pf0-vfs", Device: "eno1", Message: "does not fit"}}
	node.Result.Problems = []policy.Problem{{Device: "br-data", Message: "has a long name"}, {Message: "too many"}}
	node.Result = node.Result.Tainted(func(e draslices.Entry) []resourceapi.DeviceTaint {
		if e.Device.Name != "enp3s0f0" {
			return nil
		}
		return []resourceapi.DeviceTaint{{Key: "dra.networking/unavailable", Value: "no-carrier"}}
	})
	page := Build(node)
	var got []string
	for _, p := range page.Problems {
		got = append(got, p.Where+" "+p.What)
	}
	want := []string{
		"device br-data has a long name", "device eno1 cannot be read",
		"device enp3s0f0 cannot be allocated: no-carrier: the link has no carrier", // once for both entries
		"policy pf0-vfs is wrong", "policy pf0-vfs, device eno1 does not fit", "the machine no devlink",
		"the node too many",
		"virtual functions 0000:05:00.2, 0000:05:00.3 have no names and are not offered: the interface of their " +
			"physical function is not on the node, or does not list them",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, row := range page.Rows {
		if row.Label == "br-data" && !slices.Contains(row.Why, "has a long name") {
			t.Errorf("br-data: %v", row.Why)
		}
	}
}

// The row of a shared device shows how it is used, which entries it blocks, and which entries block it.
func TestRows(t *testing.T) {
	page := Build(liveNode(t))
	rows := map[string]Row{}
	for _, row := range page.Rows {
		rows[row.Label] = row
	}
	pf := rows["enp3s0f0"]
	wantOffers := []Offer{
		{Name: "enp3s0f0-macvlan", Use: "shared", Policy: "pf0-macvlan", Plugins: []string{"macvlan"}, State: InUse,
			Capacity: []Amount{{Name: "macvlans", Left: "60", Total: "64", Default: "1"}},
			Consumes: "64 macvlans-capacity"},
		{Name: "enp3s0f0-passthrough", Use: "exclusive", Policy: "pf0-passthrough", Plugins: []string{"host-device"},
			State:    Blocked,
			Consumes: "100k bandwidth, 9 exclusion-slots, 64 macvlans-capacity", BlockedBy: []string{"enp3s0f0-macvlan",
				"enp3s0f0v0"}},
	}
	if diff := cmp.Diff([]Holding{{"enp3s0f0-macvlan", "shop/web-net"}}, pf.Held); diff != "" {
		t.Errorf("enp3s0f0 is held (-want +got):\n%s", diff)
	}
	wantHeld := []Holding{{"enp3s0f1v0", "data/store-bond"}, {"enp3s0f1v1", "shop/waiting"}}
	if diff := cmp.Diff(wantHeld, rows["enp3s0f1v0, enp3s0f1v1"].Held); diff != "" {
		t.Errorf("two functions are held (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantOffers, pf.Offers); diff != "" || pf.State != InUse {
		t.Errorf("enp3s0f0 is %s (-want +got):\n%s", pf.State, diff)
	}
	for label, want := range map[string]Row{
		"enp3s0f0v0":              {State: InUse},
		"enp3s0f0v1 … enp3s0f0v7": {State: Free},
		"enp3s0f1":                {State: Blocked},
		"enp3s0f1v3": {State: HeldBack,
			Why: []string{"quarantined: the cleanup after an earlier pod failed"}},
		"eno1": {State: Hidden,
			Why: []string{"policy exclude-management: excludes: the expression is true"}},
		"br-int, ovn-k8s-mp0": {State: Hidden,
			Why: []string{"policy exclude-cluster-cni: excludes: the expression is true"}},
	} {
		got, known := rows[label]
		if diff := cmp.Diff(want.Why, got.Why); !known || got.State != want.State || diff != "" {
			t.Errorf("%s (known: %v) is %s, want %s; why (-want +got):\n%s", label, known, got.State, want.State, diff)
		}
	}
}

// A device without a working plugin is marked as unusable, because it would otherwise look free.
func TestUnusableDevices(t *testing.T) {
	node := liveNode(t)
	node.CNIPlugins = []string{"macvlan", "bridge"}
	for _, row := range Build(node).Rows {
		states := map[string]State{"enp3s0f0v0": InUse, "enp3s0f0v1 … enp3s0f0v7": Unusable, "enp3s0f0": InUse,
			"enp3s0f1v3": HeldBack}
		want, named := states[row.Label]
		if named && row.State != want || want == Unusable && !slices.Contains(row.Why,
			"no CNI plugin of its policy is installed on the node: sriov, host-device") {
			t.Errorf("%s is %s, want %s: %v", row.Label, row.State, want, row.Why)
		}
	}
}

func TestCounters(t *testing.T) {
	want := []Counter{
		{"worker-1/enp3s0f0", "macvlans-capacity", "0", "64", 0},
		{"worker-1/enp3s0f1", "bandwidth", "12600", "25k", 50},
		{"worker-1/enp3s0f1", "exclusion-slots", "3", "5", 60},
		{"worker-1/enp3s0f0", "bandwidth", "87500", "100k", 87},
		{"worker-1/enp3s0f0", "exclusion-slots", "8", "9", 88},
	}
	if diff := cmp.Diff(want, Build(liveNode(t)).Counters); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A claim with a failed chain comes first and is expanded. A claim without a pod shows its planned chain.
func TestClaims(t *testing.T) {
	page := Build(liveNode(t))
	type short struct {
		Name, State string
		Open        bool
		Steps       []Step
	}
	var got []short
	for _, c := range page.Claims {
		got = append(got, short{c.Name, c.State, c.Open, c.Runs[0].Steps})
	}
	want := []short{
		{"shop/db-net", "failed", true,
			[]Step{{Name: "port", Plugin: "bridge", Device: "br-data", State: stepFailed, Took: "22 ms",
				Result: "no IP addresses available in range set: 10.1.0.1-10.1.0.254"}}},
		{"shop/late-net", "failed", true,
			[]Step{{Name: "port", Plugin: "bridge", Device: "br-data", State: stepUndone, Took: "12 ms",
				Result: "net1 10.1.0.9/24"},
				{Name: "knobs", Plugin: "tuning", State: stepFailed, Took: "3.0 ms", Result: "no such knob",
					After: []int{0}}}},
		{"data/store-bond", "ready", false, []Step{
			{Name: "left", Plugin: "sriov", Device: "enp3s0f0v0", State: stepDone, Took: "31 ms",
				Result: "left 10.3.0.5/24"}, {Name: "right", Plugin: "sriov", Device: "enp3s0f1v0", State: stepDone,
				Took: "29 ms", Result: "ok"},
			{Name: "bond", Plugin: "bond", State: stepDone, Took: "8.0 ms", Result: "bond0 10.3.0.6/24",
				After: []int{0, 1}},
			{Name: "vlan", Plugin: "vlan", State: stepDone, Took: "5.0 ms", Result: "vlan7 10.7.0.6/24",
				After: []int{2}}}},
		{"shop/waiting", "prepared, no pod yet", false,
			[]Step{{Name: "port", Plugin: "sriov", Device: "enp3s0f1v1", State: stepWaiting}}},
		{"shop/web-net", "ready", false,
			[]Step{{Name: "uplink", Plugin: "macvlan", Device: "enp3s0f0-macvlan", State: stepDone, Took: "13 ms",
				Result: "net1 10.2.0.5/24"}, {Name: "tune", Plugin: "tuning", State: stepDone, Took: "4.0 ms",
				Result: "ok", After: []int{0}}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A lost interface is reported for the pod, its claim and the step that attached it.
func TestLostInterfaces(t *testing.T) {
	node := liveNode(t)
	for i := range node.Sandboxes {
		if slices.Contains(node.Sandboxes[i].Claims, claimNamed(t, &node, "store-bond").Claim.UID) {
			device := claimNamed(t, &node, "store-bond").Plans[0].Steps[1].Device
			node.Sandboxes[i].Interfaces = []nodestate.Interface{{
				ClaimUID: claimNamed(t, &node, "store-bond").Claim.UID, Pool: device.Pool, Device: device.Name,
				Interface: "bond0", Missing: "right",
			}}
		}
	}
	page := Build(node)
	i := slices.IndexFunc(page.Claims, func(c ClaimView) bool { return c.Name == "data/store-bond" })
	claim := page.Claims[i]
	var states []string
	for _, step := range claim.Runs[0].Steps {
		states = append(states, step.State)
	}
	if diff := cmp.Diff([]string{stepDone, stepLost, stepDone, stepDone}, states); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if claim.State != stateLost || claim.Runs[0].State != stateLost || !claim.Bad ||
		!strings.Contains(claim.Runs[0].Failure, "interface right is no longer in pod") {
		t.Errorf("the claim is %s, bad %t: %s", claim.State, claim.Bad, claim.Runs[0].Failure)
	}
	if !slices.ContainsFunc(page.Problems,
		func(p Problem) bool {
			return strings.Contains(p.What, "has lost its interface right") &&
				strings.HasPrefix(p.ToDo, "delete the pod")
		}) {
		t.Errorf("problems are %+v", page.Problems)
	}
	// If the device is gone, a new pod would not get it either.
	device := claimNamed(t, &node, "store-bond").Plans[0].Steps[1].Device
	for i := range node.Result.Entries {
		if entry := &node.Result.Entries[i]; entry.Name == device.Name {
			entry.Pool = device.Pool
			entry.Spec.Taints = append(entry.Spec.Taints, resourceapi.DeviceTaint{Value: taintGone})
		}
	}
	for _, row := range Build(node).Rows {
		if slices.ContainsFunc(row.Members, func(m Member) bool { return m.Name == device.Name }) && len(row.What) > 0 {
			t.Errorf("a missing device is described as %q", row.What)
		}
	}
	for _, problem := range Build(node).Problems {
		if strings.Contains(problem.ToDo, "delete") && !strings.Contains(problem.ToDo, "restore") {
			t.Errorf("the device is gone, but the action is: %+v", problem)
		}
	}
}

// If a pod could neither be attached nor cleaned up, both errors are shown.
func TestDetachFailures(t *testing.T) {
	node := liveNode(t)
	for i := range node.Sandboxes {
		if box := &node.Sandboxes[i]; box.Failure != "" {
			box.State, box.DetachFailure = "detaching", "no plugin"
		}
	}
	const want = "could not be detached yet: step \"port\" (bridge) of topology data: no IP addresses"
	if !slices.ContainsFunc(Build(node).Problems, func(p Problem) bool {
		return strings.HasPrefix(p.What, want) && strings.HasSuffix(p.What, "undone yet: no plugin")
	}) {
		t.Errorf("problems are %+v", Build(node).Problems)
	}
}

func claimNamed(t *testing.T, node *Node, name string) *nodestate.Claim {
	t.Helper()
	for i := range node.Claims {
		if node.Claims[i].Claim.Name == name {
			return &node.Claims[i]
		}
	}
	t.Fatalf("there is no claim %s", name)
	return nil
}

// Devices share a row even though the kernel gives each a different interface name.
func TestOtherNamesShareARow(t *testing.T) {
	node := nodeOf(t, discoverytest.Examples()["example6"], "example6")
	for i := range node.Decision.Devices {
		device := &node.Decision.Devices[i].Device
		device.Interface, device.AltNames = discovery.IfName(fmt.Sprintf("eth%d", i)),
			[]string{fmt.Sprintf("also%d", i)}
	}
	page := Build(node)
	want := []Member{{"enp3s0f0v0", "0000:03:00.2", "eth1, also1", "mlx5_1"},
		{"enp3s0f0v1", "0000:03:00.3", "eth2, also2", "mlx5_2"}}
	if diff := cmp.Diff(want, page.Rows[1].Members[:2]); len(page.Rows) != 2 || diff != "" {
		t.Errorf("%d rows (-want +got):\n%s", len(page.Rows), diff)
	}
	if box := page.Machine[0].Roots[0].Boxes[0]; !slices.Contains(box.Lines, "also eth0, also0") {
		t.Errorf("the box says %q", box.Lines)
	}
	if box := page.Machine[0].Roots[0].Boxes[0]; !slices.Contains(box.Lines, "RDMA device mlx5_0") {
		t.Errorf("the box says %q", box.Lines)
	}
}

// Every device appears exactly once in the drawing: in its own box, or in the box of its physical function.
func TestMachine(t *testing.T) {
	for name, host := range map[string]*discoverytest.Host{
		"reference": discoverytest.ReferenceNode(), "switchdev": discoverytest.Switchdev(),
		"enslaved":  discoverytest.EnslavedFunction(),
		"odd names": discoverytest.OddNames(), "virtio": discoverytest.Virtio(),
		"without PCI": discoverytest.WithoutPCI(), "big": discoverytest.Machine(3, 8),
	} {
		node := nodeOf(t, host, "reference-node")
		page := Build(node)
		members := map[string][]string{}
		for _, row := range page.Rows {
			for _, member := range row.Members {
				members[row.ID] = append(members[row.ID], member.Name)
			}
		}
		var drawn, want []string
		for _, area := range page.Machine {
			for _, root := range area.Roots {
				for _, box := range root.Boxes {
					drawn = append(drawn, members[box.ID]...)
					for _, cell := range box.Functions {
						drawn = append(drawn, cell.Name)
					}
				}
			}
		}
		for i := range node.Facts.Devices {
			want = append(want, string(node.Facts.Devices[i].Name))
		}
		slices.Sort(drawn)
		slices.Sort(want)
		if diff := cmp.Diff(want, drawn); diff != "" {
			t.Errorf("%s (-devices +drawn):\n%s", name, diff)
		}
	}
	var titles []string
	for _, area := range Build(nodeOf(t, discoverytest.Examples()["example9"], "example9")).Machine {
		titles = append(titles, area.Title)
	}
	if diff := cmp.Diff([]string{"NUMA node 0", "NUMA node 1"}, titles); diff != "" {
		t.Errorf("areas (-want +got):\n%s", diff)
	}
}

func TestRanges(t *testing.T) {
	for want, names := range map[string][]string{
		"":                               nil,
		"eth0":                           {"eth0"},
		"eth0, eth1":                     {"eth0", "eth1"},
		"v8 … v10, v12":                  {"v8", "v9", "v10", "v12"},
		"a, b, c, d and more: 5 devices": {"a", "b", "c", "d", "e"},
		"x99999999999, x100000000000":    {"x99999999999", "x100000000000"},
		"eth01, eth2":                    {"eth01", "eth2"},
	} {
		if got := ranges(names); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}

// TestPageGolden compares whole pages with files in testdata.
func TestPageGolden(t *testing.T) {
	for name, node := range map[string]Node{"live": liveNode(t),
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

func written(t *testing.T, node Node) string {
	t.Helper()
	var text bytes.Buffer
	if err := Write(&text, Build(node)); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
