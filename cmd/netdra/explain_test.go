package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// TestExplainGolden explains the first device of each type in the published examples and compares the output with files
// in testdata.
func TestExplainGolden(t *testing.T) {
	for name, machine := range discoverytest.Examples() {
		dir := filepath.Join(t.TempDir(), "worker-1")
		if err := machine.Write(dir); err != nil {
			t.Fatal(err)
		}
		facts, err := discovery.Read(t.Context(), machine.Sources())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		var all strings.Builder
		for _, device := range facts.Devices {
			if seen[device.Type] {
				continue
			}
			seen[device.Type] = true
			code, stdout, stderr := runNetdra(t, "", "explain", string(device.Name), "-f",
				filepath.Join("..", "..", "slices", "testdata", name+".yaml"), "--from", dir)
			fmt.Fprintf(&all, "$ netdra explain %s -f %s.yaml --from worker-1\n%s%s(exit status %d)\n\n", device.Name,
				name, stdout, stderr, code)
		}
		golden(t, filepath.Join("testdata", "explain", name+".txt"), all.String())
	}
}

// The policy attributes of each device are explained. If a device has no value for an attribute, the reason is shown.
// The first device has no row in attributesByPCIAddress and is named in the problem; the row for the third device lacks
// a column.
func TestExplainAttributesGolden(t *testing.T) {
	var all strings.Builder
	for _, device := range []string{"enp121s0f0np0", "enp49s0f0np0", "0000:31:00.1"} {
		code, stdout, stderr := runNetdra(t, "", "explain", device, "-f", "testdata/explain/attributes.yaml", "--from",
			"../../discovery/testdata/mi300x")
		fmt.Fprintf(&all, "$ netdra explain %s -f attributes.yaml --from mi300x\n%s%s(exit status %d)\n\n",
			device, stdout,
			stderr, code)
	}
	golden(t, filepath.Join("testdata", "explain", "attributes.txt"), all.String())
}

// A misspelled attribute is reported only once, with the validation message and without the CEL hint.
func TestMisspeltAttributesAreToldOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "worker-1")
	if err := discoverytest.Examples()["example1"].Write(dir); err != nil {
		t.Fatal(err)
	}
	const misspelt = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: shared}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifNmae == "eth0"'}
  exposure: {allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan}]}
`
	const want = `no device has an attribute dra.networking/ifNmae: did you mean ` +
		`device.attributes["dra.networking"].ifName?`
	for _, arguments := range [][]string{{"explain", "enp3s0f0"}, {"slices"}} {
		_, stdout, stderr := runNetdra(t, misspelt, append(arguments, "-f", "-", "--from", dir)...)
		all := stdout + stderr
		if strings.Count(all, want) != 1 || strings.Contains(all, "no such key") {
			t.Errorf("%v does not explain the misspelled attribute exactly once:\n%s", arguments, all)
		}
	}
}

// Devices get the attributes from the driver's attribute files, even if netdra discovers the devices.
func TestExplainUsesTheAttributeFilesOfTheDriver(t *testing.T) {
	f := newFake(t)
	policy := policyapi.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: "rails"},
		Spec: policyapi.DeviceExposurePolicySpec{Selector: policyapi.DeviceSelector{
			CEL: `device.attributes["example.com"].?rail.orValue(0) == 3`},
			Exposure: &policyapi.Exposure{
				SupportedCNIPlugins: []policyapi.CNIPlugin{{Name: "tuning", Exclusive: true}}}}}
	row := nodeattributes.Row{Interface: "up1"}
	row.Attributes = map[string]policyapi.AttributeValue{"example.com/rail": {Int: new(int64(3))}}
	state := nodestate.State{CNIPlugins: []string{"tuning"}, Addresses: []netip.Addr{},
		AttributeFiles: []nodeattributes.File{{Name: "rack.json", Devices: []nodeattributes.Row{row}}}}
	socket := answering(t, map[string]any{nodeapi.PathState: state,
		nodeapi.PathPolicies: nodestate.PolicyInputs{Node: "worker-1",
			Policies: []policyapi.DeviceExposurePolicy{policy}},
		nodeapi.PathPublished: []string{}, nodeapi.PathClaims: []string{}, nodeapi.PathSandboxes: []string{},
		nodeapi.PathLeftovers: []string{}})
	t.Setenv(nodeclient.SocketVariable, socket)
	file, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	kind := "apiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\n"
	for _, more := range [][]string{nil, {"-f", policyFile(t, kind+string(file)), "--cni-plugin", "tuning"}} {
		for device, want := range map[string]bool{"up1": true, "up0": false} {
			var out, errs bytes.Buffer
			run(t.Context(), f.machine(), printer.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
				append([]string{"explain", device, "-o", "json"}, more...)...)
			if strings.Contains(out.String(), `"example.com/rail"`) != want {
				t.Errorf("device %s, arguments %v: want the attribute in the output: %t\n%s%s", device, more, want,
					out.String(), errs.String())
			}
		}
	}
}

// golden compares text with a file, or writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
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

// runNetdra runs a command.
func runNetdra(t *testing.T, stdin string, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	deps := osdeps.Deps{Facts: osdeps.ReadFacts, Hostname: func() (string, error) { return "Host-1", nil }}
	code = run(t.Context(), deps, printer.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, arguments...)
	return code, out.String(), errs.String()
}

func TestExplainFindsDevicesByAllTheirNames(t *testing.T) {
	recording, file := recordedFunctions(t), policyFile(t, somePolicies)
	for _, name := range []string{"eth0", "0000:03:00.0", "eth0-macvlan", "eth0-whole"} {
		code, stdout, stderr := runNetdra(t, "", "explain", name, "-f", file, "--from", recording, "--node-labels",
			"zone=a", "-o", "json")
		var explained offers.Explanation
		if err := json.Unmarshal([]byte(stdout), &explained); err != nil || code != exit.OK {
			t.Fatalf("%s: exit status %d, %v:\n%s", name, code, err, stderr)
		}
		want := offers.Explanation{Device: "eth0", Type: "pf", PCIAddress: "0000:03:00.0",
			Versions: nodeclient.VersionsOf(nil), Entries: []offers.ExplainedEntry{
				{Name: "eth0-macvlan", Pool: "worker-1/eth0", Use: "shared", Plugins: []string{"macvlan"},
					Capacity: "macvlans=64 (default 1)", Consumes: "macvlans-capacity=64", Policy: "macvlans"},
				{Name: "eth0-whole", Pool: "worker-1/eth0", Use: "exclusive", Plugins: []string{"host-device"},
					Capacity: "-", Consumes: "bandwidth=100k exclusion-slots=5 macvlans-capacity=64", Policy: "whole"},
			}, Policies: []offers.ExplainedOutcome{
				{Policy: "macvlans", Outcome: "exposes", Why: "the expression is true"}, {Policy: "vfs",
					Outcome: "no match", Why: "the expression is false"},
				{Policy: "whole", Outcome: "exposes", Why: "the expression is true"},
			}}
		if diff := cmp.Diff(want, explained); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	code, _, stderr := runNetdra(t, "", "explain", "eth7", "-f", file, "--from", recording)
	if code != exit.Refused || !strings.Contains(stderr,
		"cannot find device eth7; devices of this machine: br0, eth0, eth0v0") {
		t.Errorf("exit status %d, want a list of the machine's devices: %s", code, stderr)
	}
	if code, _, stderr := runNetdra(t, "", "explain", "eth0", "--from", recording); code != exit.Refused ||
		!strings.Contains(stderr, "pass a file with -f") {
		t.Errorf("exit status %d, want a hint to pass -f: %s", code, stderr)
	}
}

// Without files, explain gets policies, holders and devices in pods from the node's driver.
func TestExplainAsksTheDriver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"/policies": `{"node": "worker-1", "labels": {"zone": "a"}, "policies": [{"metadata": {"name": "whole"}, "spec": {"priority": 1, "action": "expose",
			"nodeSelector": {"matchLabels": {"zone": "a"}}, "selector": {"cel": "true"}, "exposure": {"supportedCNIPlugins": [{"name": "host-device", "exclusive": true}]}}}]}`,
		"/published": `[{"Pool": "worker-1/eth1", "Name": "eth1", "Persona": ` +
			`{"Exclusive": true, "Plugins": ["host-device"]}, "Device": ` +
			`{"name": "eth1", "interface": "eth1", "type": "nic"}}]`,
		"/claims": `[{"claim": {"namespace": "ns", "name": "c", "uid": "u"}, "devices": [{"pool": ` +
			`"worker-1/eth1", "name": "eth1", "facts": {}}]}]`,
		"/state":     `{"cniPlugins": ["host-device"], "addresses": ["10.88.0.1"]}`,
		"/sandboxes": `[]`,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_,
			_ = w.Write([]byte(answers[r.URL.Path]))
	})} //nolint:gosec // a test
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	var addresses []netip.Addr // they identify infrastructure links, as in the driver
	deps := osdeps.Deps{Facts: func(_ context.Context, given []netip.Addr) (discovery.Facts, error) {
		addresses = given
		return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"}}}, nil
	}}
	for device, want := range map[string]string{
		"eth0": "eth0    worker-1/eth0  exclusive  host-device  -         -         whole   -\n",
		"eth1": "eth1    worker-1/eth1  exclusive  host-device  -         -         whole   ns/c\n",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "explain", device, "--socket", socket)
		if code != exit.OK || !strings.Contains(out.String(), want) {
			t.Errorf("exit status %d, want %q:\n%s%s", code, want, out.String(), errs.String())
		}
	}
	if want := netip.MustParseAddr("10.88.0.1"); !slices.Equal(addresses, []netip.Addr{want}) {
		t.Errorf("the driver was asked for facts with addresses %v, want 10.88.0.1", addresses)
	}
	answers["/sandboxes"] = `[{"pod": {"namespace": "ns", "name": "p"}, "claims": ["u"], "state": "ready",
		"interfaces": [{"claimUID": "u", "pool": "worker-1/eth1", "device": "eth1", "missing": "net1"}]}]`
	for published, want := range map[string]string{
		answers["/published"]: "✗ nic eth1 is published, but its interface has disappeared from the pod that uses it",
		strings.Replace(answers["/published"], `"Name"`, `"Spec": {"taints": [{"value": "gone"}]}, "Name"`,
			1): "✗ nic eth1 no longer exists on the node",
	} {
		answers["/published"] = published
		var out bytes.Buffer
		code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &out}, "explain", "eth1", "--socket", socket)
		if code != exit.Failed || !strings.Contains(out.String(), want) ||
			!strings.Contains(out.String(), "eth1: interface net1 is no longer in pod ns/p") {
			t.Errorf("exit status %d, want %q:\n%s", code, want, out.String())
		}
	}
	policies, published, sandboxes := answers["/policies"], answers["/published"], answers["/sandboxes"]
	answers["/policies"] = strings.Replace(policies, `"cel": "true"`, `"cel": "false"`, 1)
	const taint = `"Spec": {"taints": [{"value": "gone"}]}, `
	answers["/published"] = strings.Replace(strings.Replace(published, taint, "", 1), `"Name"`,
		strings.Replace(taint, "gone", "withdrawn", 1)+`"Name"`, 1)
	answers["/sandboxes"] = `[]`
	var withdrawn bytes.Buffer
	if code := run(t.Context(), deps, printer.Streams{Out: &withdrawn, Err: &withdrawn}, "explain", "eth1", "--socket",
		socket); code != exit.Failed || !strings.Contains(withdrawn.String(), "✗ nic eth1 is withdrawn: no policy offers") ||
		!strings.Contains(withdrawn.String(), "ns/c\n") {
		t.Errorf("explain of a withdrawn device: exit status %d:\n%s", code, withdrawn.String())
	}
	answers["/policies"], answers["/published"], answers["/sandboxes"] = policies, published, sandboxes
	answers["/state"] = `{"cniPlugins": ["bridge"]}`
	var out bytes.Buffer
	if code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &out}, "explain", "eth0", "--socket",
		socket); code != exit.Failed || !strings.Contains(out.String(), "eth0 is published, "+
		"but no class can select it: "+
		"no CNI plugin of its policy is installed on the node: host-device") ||
		!strings.Contains(out.String(), "CNI plugin host-device is not installed on the node") {
		t.Errorf("explain without the CNI plugin: exit status %d:\n%s", code, out.String())
	}
	if code, _, stderr := runNetdra(t, "", "explain", "eth0", "--socket", socket+"x"); code != exit.Refused ||
		!strings.Contains(stderr, "does not answer") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

// A held device is explained as its policy would expose it now. If claims could not share it now, it is reported as
// withdrawn.
func TestExplainOfAHeldDevice(t *testing.T) {
	answers := func(exclusive, taints string) map[string]any {
		return map[string]any{
			"/state": map[string]any{"cniPlugins": []string{"host-device", "netdev", "macvlan"}},
			"/policies": json.RawMessage(`{"node": "n", "policies": [{"metadata": {"name": "whole"}, "spec": ` +
				`{"selector": {"cel": "true"}, "exposure": ` + exclusive + `}}]}`),
			"/published": json.RawMessage(`[{"Pool": "n/d0", "Name": "d0", "Spec": {` + taints + `}, "Persona": ` +
				`{"Policy": "whole", "Exclusive": true, "Plugins": ["netdev"]}, "Device": {"name": "d0", ` +
				`"interface": "d0", "type": "nic"}}]`),
			"/claims": json.RawMessage(`[{"claim": {"namespace": "ns", "name": "c", "uid": "u"}, "devices": [` +
				`{"pool": "n/d0", "name": "d0", "facts": {}}]}]`),
			"/sandboxes": []any{},
		}
	}
	const row = "d0      n/d0  exclusive  netdev       -         -         whole   ns/c\n"
	for name, test := range map[string]struct {
		exposure, taints string
		code             int
		want             []string
	}{
		"the same": {`{"supportedCNIPlugins": [{"name": "netdev", "exclusive": true}]}`, "", exit.OK,
			[]string{"✓ nic d0 is offered as 1 device", row}},
		"another plugin": {`{"supportedCNIPlugins": [{"name": "host-device", "exclusive": true}]}`, "", exit.OK,
			[]string{"✓ nic d0 is offered as 1 device", strings.Replace(row, "netdev     ", "host-device", 1)}},
		"shared": {`{"allowMultipleAllocations": true, "supportedCNIPlugins": [{"name": "macvlan"}]}`,
			`"taints": [{"value": "withdrawn"}]`, exit.Failed,
			[]string{"✗ nic d0 is withdrawn: no policy offers it in this way anymore", "ns/c\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			deps := osdeps.Deps{Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
				return discovery.Facts{}, nil
			}}
			var out, errs bytes.Buffer
			code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "explain", "d0", "--socket",
				answering(t, answers(test.exposure, test.taints)))
			for _, want := range test.want {
				if code != test.code || !strings.Contains(out.String(), want) {
					t.Errorf("exit status %d, want %q:\n%s%s", code, want, out.String(), errs.String())
				}
			}
		})
	}
}
