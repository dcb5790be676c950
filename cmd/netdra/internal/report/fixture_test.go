package report

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// fixture contains the inputs for the page of a node.
type fixture struct {
	Snapshot *offers.Snapshot
	Calls    map[string][]calllog.Call
	Findings []doctor.Finding
}

// page returns the page for the fixture.
func (f *fixture) page() page {
	d := &details{Source: "a test", Versions: "netdra v1.2.3, driver v1.2.2", Live: f.Snapshot.Answers != nil}
	if d.Live {
		d.addClaims(f.Snapshot.Answers, func(namespace, name string) ([]calllog.Call, error) {
			return f.Calls[namespace+"/"+name], nil
		})
	}
	return nodePage(f.Snapshot, d, f.Findings, start().Add(time.Minute))
}

// answer makes the fixture live: the driver publishes every entry that the policies offer.
func (f *fixture) answer(claims []nodestate.Claim, sandboxes []nodestate.Sandbox) {
	f.Snapshot.Answers = &nodestate.Answers{Published: slices.Clone(f.Snapshot.Result.Entries), Claims: claims,
		Sandboxes: sandboxes, State: nodestate.State{CNIPlugins: []string{"macvlan", "host-device", "sriov", "bridge"}}}
	f.refresh()
}

// refresh recomputes the devices from the driver's answers.
func (f *fixture) refresh() { f.Snapshot.Devices = nodeclient.Devices(f.Snapshot.Answers) }

// nodeOf returns a node with the given machine and the policies from a published example.
func nodeOf(t *testing.T, machine *discoverytest.Host, example string) *fixture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "slices", "testdata", example+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var policies []v1alpha1.DeviceExposurePolicy
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "kind: ResourceSlice") {
			continue
		}
		policies = append(policies, v1alpha1.DeviceExposurePolicy{})
		if err := yaml.Unmarshal([]byte(document), &policies[len(policies)-1]); err != nil {
			t.Fatal(err)
		}
	}
	return nodeWith(t, machine, policies)
}

func nodeWith(t *testing.T, machine *discoverytest.Host, policies []v1alpha1.DeviceExposurePolicy) *fixture {
	t.Helper()
	inputs := offers.Inputs{Node: "worker-1", Addresses: []netip.Addr{},
		Plugins: []string{"macvlan", "host-device", "sriov", "bridge"}}
	deps := osdeps.Deps{Facts: func(ctx context.Context, _ []netip.Addr) (discovery.Facts, error) {
		return discovery.Read(ctx, machine.Sources())
	}}
	s, err := inputs.Build(t.Context(), deps, policies, printer.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Snapshot: s}
}

// liveNode returns the node from section 6 of the published design while it is in use. It has a shared macvlan, a bond
// of two VFs, a failed chain, and a quarantined VF.
func liveNode(t *testing.T) *fixture {
	t.Helper()
	node := nodeOf(t, discoverytest.ReferenceNode(), "reference-node")
	node.answer([]nodestate.Claim{
		madeClaim("shop", "web-net",
			[]nodestate.HeldDevice{{Request: "net", Pool: "worker-1/enp3s0f0", Name: "enp3s0f0-macvlan",
				Consumed: map[resourceapi.QualifiedName]resource.Quantity{
					"dra.networking/macvlans": resource.MustParse("4"),
				}}},
			cnichain.PlanStep{Name: "uplink", Type: "macvlan", Device: &cnichain.Device{Name: "enp3s0f0-macvlan"}},
			cnichain.PlanStep{Name: "tune", Type: "tuning", DependsOn: []int{0}}),
		madeClaim("data", "store-bond",
			[]nodestate.HeldDevice{{Request: "left", Pool: "worker-1/enp3s0f0", Name: "enp3s0f0v0"},
				{Request: "right", Pool: "worker-1/enp3s0f1", Name: "enp3s0f1v0"}},
			cnichain.PlanStep{Name: "left", Type: "sriov", Device: &cnichain.Device{Name: "enp3s0f0v0"}},
			cnichain.PlanStep{Name: "right", Type: "sriov", Device: &cnichain.Device{Name: "enp3s0f1v0"}},
			cnichain.PlanStep{Name: "bond", Type: "bond", DependsOn: []int{0, 1}},
			cnichain.PlanStep{Name: "vlan", Type: "vlan", DependsOn: []int{2}}),
		madeClaim("shop", "db-net", []nodestate.HeldDevice{{Request: "net", Pool: "worker-1/br-data", Name: "br-data"}},
			cnichain.PlanStep{Name: "port", Type: "bridge", Device: &cnichain.Device{Name: "br-data"}}),
		madeClaim("shop", "late-net", []nodestate.HeldDevice{{Request: "net", Pool: "worker-1/br-data", Name: "br-data"}},
			cnichain.PlanStep{Name: "port", Type: "bridge", Device: &cnichain.Device{Name: "br-data"}},
			cnichain.PlanStep{Name: "knobs", Type: "tuning", DependsOn: []int{0}}),
		madeClaim("shop", "waiting",
			[]nodestate.HeldDevice{{Request: "net", Pool: "worker-1/enp3s0f1", Name: "enp3s0f1v1"}},
			cnichain.PlanStep{Name: "port", Type: "sriov", Device: &cnichain.Device{Name: "enp3s0f1v1"}}),
	}, []nodestate.Sandbox{
		{ID: "5f1c0ffee0000001", Pod: executor.Pod{Namespace: "shop", Name: "web-0"}, Claims: []string{"shop-web-net"},
			State: "ready"},
		{ID: "5f1c0ffee0000002", Pod: executor.Pod{Namespace: "data", Name: "store-0"},
			Claims: []string{"data-store-bond"}, State: "ready"},
		{ID: "5f1c0ffee0000003", Pod: executor.Pod{Namespace: "shop", Name: "db-0"}, Claims: []string{"shop-db-net"},
			State: "attaching",
			Failure: `step "port" (bridge) of topology data: no IP addresses available in range set: ` +
				`10.1.0.1-10.1.0.254`},
	})
	made := func(name, address string) string {
		return `{"cniVersion":"1.0.0","interfaces":[{"name":"` + name + `","sandbox":"/x"}],"ips":[{"address":"` +
			address + `"}]}`
	}
	node.Calls = map[string][]calllog.Call{
		"shop/web-net": {called("5f1c0ffee0000001", "uplink", "ADD", "macvlan", 13, made("net1", "10.2.0.5/24")),
			called("5f1c0ffee0000001", "tune", "ADD", "tuning", 4, `{}`)},
		"data/store-bond": {called("5f1c0ffee0000002", "left", "ADD", "sriov", 31, made("left", "10.3.0.5/24")),
			called("5f1c0ffee0000002", "right", "ADD", "sriov", 29, ""),
			called("5f1c0ffee0000002", "bond", "ADD", "bond", 8, made("bond0", "10.3.0.6/24")),
			called("5f1c0ffee0000002", "vlan", "ADD", "vlan", 5, made("vlan7", "10.7.0.6/24"))},
		"shop/db-net": {failed(called("5f1c0ffee0000003", "port", "ADD", "bridge", 22, ""),
			"no IP addresses available in range set: 10.1.0.1-10.1.0.254"),
			called("5f1c0ffee0000003", "port", "DEL", "bridge", 6, "")},
	}
	node.Calls["shop/late-net"] = []calllog.Call{
		called("5f1c0ffee0000005", "port", "ADD", "bridge", 12, made("net1", "10.1.0.9/24")),
		failed(called("5f1c0ffee0000005", "knobs", "ADD", "tuning", 3, ""), "no such knob"),
		called("5f1c0ffee0000005", "knobs", "DEL", "tuning", 2, ""), called("5f1c0ffee0000005", "port", "DEL",
			"bridge", 7, ""),
	}
	for name, calls := range node.Calls {
		for i := range calls {
			calls[i].Claim, calls[i].ClaimUID = name, strings.Replace(name, "/", "-", 1)
		}
	}
	node.Calls["shop/waiting"] = []calllog.Call{failed(called("5f1c0ffee0000006", "port", "ADD", "sriov", 9, ""),
		"of an earlier claim of the name")}
	node.Findings = []doctor.Finding{{Level: doctor.OK, What: "the driver answers"},
		{Level: doctor.Warn, What: "pod shop/db-0 waits: its interfaces could not be attached",
			Where: "sandbox 5f1c0ffee0000003", Why: "no IP addresses available", Do: "see netdra trace"},
		{Level: doctor.Fail, What: "device enp3s0f1v3 has been quarantined since pod shop/gone-0 ended",
			Where: "5f1c0ffee0000004/shop-gone/port/0", Why: "the cleanup failed in 10 attempts: operation not supported",
			Do: "fix the reported cause, then run: netdra release 5f1c0ffee0000004/shop-gone/port/0"}}
	quarantine(node, "enp3s0f1v3")
	return node
}

func madeClaim(namespace, name string, devices []nodestate.HeldDevice, steps ...cnichain.PlanStep) nodestate.Claim {
	id := cnichain.Claim{Namespace: namespace, Name: name, UID: namespace + "-" + name}
	return nodestate.Claim{ClaimRecord: nodestate.ClaimRecord{Claim: id, Devices: devices,
		Plans: []cnichain.Plan{{Topology: "data", Claim: id, Steps: steps}}}}
}

func called(sandbox, step, command, plugin string, milliseconds int, stdout string) calllog.Call {
	return calllog.Call{Time: start(),
		Duration: calllog.Duration(time.Duration(milliseconds) * time.Millisecond), Sandbox: sandbox, Step: step,
		Command: command, Plugin: "/opt/cni/bin/" + plugin, Stdout: json.RawMessage(stdout)}
}

func failed(call calllog.Call, err string) calllog.Call {
	call.Error = err
	return call
}

// quarantine taints a virtual function in the same way as the driver.
func quarantine(node *fixture, name string) {
	pod := executor.Pod{Namespace: "shop", Name: "gone-0"}
	answers := node.Snapshot.Answers
	answers.Leftovers = append(answers.Leftovers, executor.Leftover{
		Key: "5f1c0ffee0000004/shop-gone/port/0", Since: start(), Attempts: 10, Reason: "device " + name +
			": the driver of its physical function refuses VLAN 0: operation not supported",
		Attachment: executor.Attachment{Pod: pod, Steps: []executor.StepRecord{{Epoch: 1, Phase: executor.StepDeleting,
			Step: cnichain.PlanStep{Name: "port", Type: "sriov", Device: &cnichain.Device{Name: name,
				Pool: "worker-1/enp3s0f1", Exclusive: true, PCIAddress: "0000:03:01.5"}}}}},
	})
	node.taint(name, "quarantined")
}

// taint taints the entries with the given name in the same way as the driver.
func (f *fixture) taint(name, value string) {
	published := f.Snapshot.Answers.Published
	for i := range published {
		if published[i].Name == name {
			published[i].Spec.Taints = []resourceapi.DeviceTaint{{Key: "dra.networking/unavailable", Value: value,
				Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	f.refresh()
}
