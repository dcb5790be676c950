package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// newPolicies exclude the physical function in recordedFunctions. Some of these policies are invalid.
const newPolicies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: whole}
spec:
  priority: 200
  action: exclude
  selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: bridges}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "bridge"'}
  exposure:
    allowMultipleAllocations: true
    capacity: {ports: {value: "8", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: bridge, exclusive: false, consumePerAllocation: {ports: 1}}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: elsewhere}
spec:
  nodeSelector: {matchLabels: {zone: b}}
  selector: {cel: 'true'}
  exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: typo}
spec:
  selector: {cel: 'device.attribute.type == "pf"'}
  exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}
`

func TestPoliciesTestGolden(t *testing.T) {
	recording, old, given := recordedFunctions(t), policyFile(t, somePolicies), policyFile(t, newPolicies)
	same := strings.NewReplacer(old, "old.yaml", given, "new.yaml", recording, "worker-1")
	var all strings.Builder
	for _, test := range []struct {
		arguments []string
		code      int
	}{
		{[]string{given, "--policies", old, "--from", recording, "--node-labels", "zone=a"}, exit.Failed},
		{[]string{given, "--policies", old, "--from", recording, "--alone"}, exit.Failed},
		{[]string{old, "--policies", old, "--from", recording, "--node-labels", "zone=a"}, exit.OK},
		{[]string{old, "--from", recording, "--node-labels", "zone=a"}, exit.OK},
		{[]string{"/nowhere", "--from", recording}, exit.Refused},
		{[]string{old, "--policies", "/nowhere", "--from", recording}, exit.Refused},
		{[]string{old, "-f", old}, exit.Refused},
		{[]string{old, "--socket", "/nowhere"}, exit.Refused},
	} {
		code, stdout, stderr := runNetdra(t, "", append([]string{"policies", "test"}, test.arguments...)...)
		if code != test.code {
			t.Errorf("%v: exit status %d, want %d", test.arguments, code, test.code)
		}
		all.WriteString("$ netdra policies test " + same.Replace(strings.Join(test.arguments, " ")+"\n"+stdout+stderr) +
			"\n")
	}
	golden(t, filepath.Join("testdata", "policiestest.txt"), all.String())
}

// Each remark is printed only once. A policy that is not evaluated is not reported as having no matches.
func TestPoliciesTestSaysWhatIsTrueOnce(t *testing.T) {
	file := policyFile(t, `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: remarkable}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: false}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: unlimited}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
  exposure: {allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: invalid}
spec:
  selector: {cel: 'true'}
  exposure: {supportedCNIPlugins: []}
`)
	_, stdout, stderr := runNetdra(t, "", "policies", "test", file, "--from", recordedFunctions(t))
	if n := strings.Count(stdout, "capacity"); n != 1 || !strings.Contains(stdout, `counter "shares" of 1000000`) {
		t.Errorf("missing capacity is reported %d times, want once", n)
	}
	if n := strings.Count(stdout, "plugin sriov is not exclusive"); n != 1 {
		t.Errorf("the remark about plugin sriov is printed %d times, want once", n)
	}
	if strings.Contains(stdout, "matches no device") ||
		!strings.Contains(stdout, "is not evaluated for devices until it is fixed") {
		t.Errorf("the invalid policy is described incorrectly")
	}
	if t.Failed() {
		t.Log(stdout, stderr)
	}
}

// A policy whose expression fails on some devices is distinguished from a policy whose expression is false.
func TestPoliciesTestTellsErrorsFromFalse(t *testing.T) {
	for spec, want := range map[string]string{
		`selector: {cel: '@type == "dummy"'}`: "✓ policy p\n  matches none of the 6 devices of this machine: its " +
			"expression is false for each\n",
		`selector: {cel: '@type == "eth" && @ifName != "eth9"'}`: "its expression is false for each\n\nChanges",
		`selector: {cel: '@mtu'}`:                                "  fails for all 6 devices of this machine\n\n",
		`selector: {cel: '@type == "bridge" && int(@ifName) > 1'}`: "  fails for 1 device: br0\n" +
			"  matches none of the other 5 devices: its expression is false there\n",
		`action: exclude, selector: {cel: '@type == "bridge" && int(@ifName) > 1'}`: "  fails for, and therefore " +
			"hides, 1 device: br0\n  matches none of the other 5 devices",
		`action: exclude, selector: {cel: '@type =='}`: "  fails for, and therefore hides, all 6 devices of " +
			"this machine\n",
		`selector: {cel: '@type == "pf" || @type == "bridge" && int(@ifName) > 1'}`: "  exposes 1 device: eth0\n" +
			"  fails for 1 device: br0\n\n",
	} {
		if !strings.HasPrefix(spec, "action") {
			spec += ", exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}"
		}
		file := policyFile(t, "apiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\n"+
			"metadata: {name: p}\nspec: {"+strings.ReplaceAll(spec, "@", `device.attributes["dra.networking"].`)+"}\n")
		_, stdout, stderr := runNetdra(t, "", "policies", "test", file, "--from", recordedFunctions(t))
		if !strings.Contains(stdout, want) {
			t.Errorf("%s: output lacks %q:\n%s%s", spec, want, stdout, stderr)
		}
	}
}

// policies test and explain report devices that the node itself needs.
func TestNodeTrafficIsTold(t *testing.T) {
	file := policyFile(t, `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: whole}
spec:
  selector: {cel: 'device.attributes["dra.networking"].defaultRoute'}
  exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}
`)
	const recording = "../../discovery/testdata/h100"
	for _, arguments := range [][]string{{"policies", "test", file}, {"explain", "eno3", "-f", file},
		{"slices", "-f", file, "-o", "text"}} {
		_, stdout, stderr := runNetdra(t, "", append(arguments, "--from", recording)...)
		if !strings.Contains(stdout+stderr, "carries a default route or an address of the node") {
			t.Errorf("%v: no warning about the device in use:\n%s%s", arguments, stdout, stderr)
		}
	}
}

// If a file contains no policies, the error names the file. If a kind is misspelled, the error lists the
// valid kinds.
func TestPoliciesTestWithoutPolicies(t *testing.T) {
	pods := policyFile(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
	misspelt := policyFile(t, strings.Replace(somePolicies, "DeviceExposurePolicy", "DeviceExposurePolcy", 1))
	for file, want := range map[string]string{
		pods: "cannot find a DeviceExposurePolicy in " + pods +
			", so nothing would be published; pass a file that contains one",
		misspelt: "unknown kind DeviceExposurePolcy in networking.dra.io; use one of NetworkTopology",
	} {
		if code, _, stderr := runNetdra(t, "", "policies", "test", file, "--from", t.TempDir()); code != exit.Refused ||
			!strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want %q:\n%s", code, want, stderr)
		}
	}
}

// A list item of the wrong type is reported with its index.
func TestPoliciesTestExplainsLists(t *testing.T) {
	file := policyFile(t, strings.Replace(somePolicies, "[{name: sriov, exclusive: true}, ", "[{name: sriov}, sriov, ", 1))
	code, _, stderr := runNetdra(t, "", "policies", "test", file, "--from", recordedFunctions(t))
	const want = "spec.exposure.supportedCNIPlugins[1]: is a string, must be an object"
	if code != exit.Refused || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d, want %q: %s", code, want, stderr)
	}
}

// An invalid capacity quantity is reported with its location, which is missing from the decoding error.
func TestPoliciesTestNamesBadQuantities(t *testing.T) {
	const policy = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  selector: {cel: "true"}
  action: expose
  exposure:
    allowMultipleAllocations: true
    capacity:
      a: {value: "x"}
      b: {value: 8, requestPolicy: {default: 10K}}
    supportedCNIPlugins: [{name: macvlan}]
`
	file := policyFile(t, policy)
	code, _, stderr := runNetdra(t, "", "policies", "test", file, "--from", recordedFunctions(t))
	for _, want := range []string{
		":10: spec.exposure.capacity.a.value: \"x\" is not a quantity: use a number, such as 8, 100M or 1Gi",
		":11: spec.exposure.capacity.b.requestPolicy.default: \"10K\" is not a quantity",
	} {
		if code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want %q: %s", code, want, stderr)
		}
	}
}

// On a node, the current policies, device holders and available CNI plugins come from the driver.
func TestPoliciesTestAsksTheDriver(t *testing.T) {
	raw := func(text string) any { return json.RawMessage(text) }
	socket := answering(t, map[string]any{
		"/state": map[string]any{"cniPlugins": []string{"host-device"}},
		"/policies": raw(`{"node": "worker-1", "policies": [{"metadata": {"name": "whole"}, "spec": {"priority": 1, "action": "expose", "selector": {"cel": "true"},
			"exposure": {"supportedCNIPlugins": [{"name": "host-device", "exclusive": true}]}}}]}`),
		"/published": raw(
			`[{"Pool": "worker-1/eth1", "Name": "eth1", "Device": {"name": "eth1", "interface": "eth1", "type": ` +
				`"nic"}}]`,
		),
		"/claims": raw(
			`[{"claim": {"namespace": "ns", "name": "c", "uid": "u"}, "devices": [{"pool": "worker-1/eth1", ` +
				`"name": "eth1", "facts": {}}]}]`,
		),
		"/sandboxes": raw(`[]`),
	})
	file := policyFile(t, `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: whole}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName == "eth0"'}
  exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}, {name: missing, exclusive: true}]}
`)
	deps := osdeps.Deps{Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
		return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"}}}, nil
	}}
	var out, errs strings.Builder
	code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "policies", "test", file, "--socket", socket,
		"-o", "json")
	var got offers.PoliciesCheck
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || code != exit.OK {
		t.Fatalf("exit status %d, %v: %s", code, err, errs.String())
	}
	if len(got.Policies) != 1 || len(got.Policies[0].Problems) != 1 ||
		!strings.Contains(got.Policies[0].Problems[0], "missing is not installed") {
		t.Errorf("got policies %+v, want one with one problem", got.Policies)
	}
	if len(got.Changes) != 1 || got.Changes[0].Kind != offers.Removed {
		t.Fatalf("got changes %+v, want one removal", got.Changes)
	}
	if diff := cmp.Diff([]string{"ns/c"}, got.Changes[0].HeldBy); diff != "" || got.Changes[0].Name != "eth1" {
		t.Errorf("wrong holder of %s (-want +got):\n%s", got.Changes[0].Name, diff)
	}
}

// The list shows what each policy does on the nodes, and which policies select nothing on any node.
func TestPoliciesList(t *testing.T) {
	w := newWorkstation(t)
	w.socket = answering(t, map[string]any{
		"/state": map[string]any{"cniPlugins": []string{"macvlan"}},
		"/policies": json.RawMessage(`{"node": "n", "policies": [
			{"metadata": {"name": "all"}, "spec": {"selector": {"cel": "device.attributes[\"dra.networking\"].ifName == \"eth0\""},
				"exposure": {"supportedCNIPlugins": [{"name": "macvlan", "exclusive": true}]}}},
			{"metadata": {"name": "unused"}, "spec": {"action": "exclude", "selector": {"cel": "false"}}},
			{"metadata": {"name": "nothing"}, "spec": {"selector": {"cel": "false"},
				"exposure": {"supportedCNIPlugins": [{"name": "macvlan", "exclusive": true}]}}},
			{"metadata": {"name": "wrong"}, "spec": {"selector": {
				"cel": "device.attributes[\"dra.networking\"].ifName == \"ehtx0\""},
				"exposure": {"supportedCNIPlugins": [{"name": "macvlan", "exclusive": true}]}}}]}`),
		"/published": []any{}, "/claims": []any{}, "/sandboxes": []any{},
	})
	w.facts = osdeps.Deps{Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
		return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"},
			{Name: "ethx0", Interface: "ethx0", Type: "nic"}}}, nil
	}}
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"policies list --node n2": {exit.OK, "POLICY   ACTION   STATE     EXPOSES  UNUSABLE  HIDES  LOSES  FAILS\n" +
			"all      expose   active    1        0         0      0      0\n" +
			"unused   exclude  no match  0        0         0      0      0\n" +
			"nothing  expose   no match  0        0         0      0      0\n" +
			"wrong    expose   no match  0        0         0      0      0\n"},
		"policies list --all-nodes wrong -o wide": {exit.OK,
			"NODE  POLICY  ACTION  STATE     EXPOSES  UNUSABLE  HIDES  LOSES  FAILS\n" +
				"n1    wrong   expose  no match  0        0         0      0      0\n" +
				"n2    wrong   expose  no match  0        0         0      0      0\n"},
		"policies list all unused --node n2 -o wide": {exit.OK,
			"POLICY  ACTION   STATE     EXPOSES  UNUSABLE  HIDES  LOSES  FAILS  EXPOSED DEVICES\n" +
				"all     expose   active    1        0         0      0      0      eth0\n"},
		"policies list --all-nodes nothing": {exit.OK, "NODE  POLICY   ACTION  STATE     EXPOSES  UNUSABLE  HIDES  LOSES  FAILS\n" +
			"n1    nothing  expose  no match  0        0         0      0      0\n" +
			"n2    nothing  expose  no match  0        0         0      0      0\n"},
		"policies list all --all-nodes -o json": {exit.OK, `[
  {
    "node": "n1",
    "policy": "all",
    "action": "expose",
    "state": "active",
    "exposes": [
      "eth0"
    ],`},
		"policies list unused --all-nodes": {exit.OK, "NODE  POLICY  ACTION   STATE     EXPOSES  UNUSABLE  HIDES  " +
			"LOSES  FAILS\n" +
			"n1    unused  exclude  no match  0        0         0      0      0\n" +
			"n2    unused  exclude  no match  0        0         0      0      0\n"},
		"policies list al --node n1": {exit.Refused, "cannot find DeviceExposurePolicy al"},
	} {
		code, stdout, stderr := w.run(line)
		if code != want.code || !strings.HasPrefix(stdout+stderr, want.text) && want.code == exit.OK ||
			!strings.Contains(stdout+stderr, want.text) {
			t.Errorf("netdra %s: exit status %d:\n%s%s", line, code, stdout, stderr)
		}
	}
}

// Devices that no class can select do not count as exposed, under either the current or the new policies.
func TestPoliciesWithoutPlugins(t *testing.T) {
	exposes := `{"selector": {"cel": "true"}, "exposure": {"supportedCNIPlugins": [{"name": "macvaln", ` +
		`"exclusive": true}]}}`
	socket := answering(t, map[string]any{
		"/state": map[string]any{"cniPlugins": []string{"macvlan"}},
		"/policies": json.RawMessage(`{"node": "n", "policies": [{"metadata": {"name": "far"}, "spec": ` + exposes +
			`}]}`),
		"/published": []any{}, "/claims": []any{}, "/sandboxes": []any{},
	})
	deps := osdeps.Deps{Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
		return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"}}}, nil
	}}
	file := policyFile(t, `{"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceExposurePolicy", `+
		`"metadata": {"name": "new"}, "spec": `+exposes+`}`)
	const why = "eth0 (no CNI plugin of its policy is installed on the node: macvaln)"
	for line, want := range map[string][]string{
		"policies list -o wide": {"far     expose  unusable  0        1         0", why},
		"policies test " + file + " --alone": {"! policy new\n", "\n  ! CNI plugin macvaln is not installed",
			"would expose, but no class can select 1 device: eth0\n"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, append(strings.Fields(line), "--socket",
			socket)...)
		for _, text := range want {
			if !strings.Contains(out.String(), text) || code != exit.OK {
				t.Errorf("%s: exit status %d, want %q:\n%s%s", line, code, text, out.String(), errs.String())
			}
		}
	}
}

// Policies from files are also checked against this machine's kernel, even before the driver uses them. For a recorded
// machine, the kernel is unknown.
func TestDryRunsAskTheKernel(t *testing.T) {
	const exposes = `{"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceExposurePolicy", "metadata": ` +
		`{"name": "NAME"}, "spec": {"selector": {"cel": "true"}, "exposure": {"allowMultipleAllocations": true, ` +
		`"supportedCNIPlugins": [{"name": "NAME"}]}}}`
	file := policyFile(t, strings.ReplaceAll(exposes, "NAME", "ipvlan"))
	socket := answering(t, map[string]any{
		"/state": map[string]any{"cniPlugins": []string{"ipvlan", "macvlan", "bridge"},
			"unusableCNIs": map[string]string{"macvlan": "known to the driver"}},
		"/policies": json.RawMessage(`{"node": "n", "policies": [` + strings.ReplaceAll(exposes, "NAME",
			"macvlan") + `]}`),
		"/published": []any{}, "/claims": []any{}, "/sandboxes": []any{},
	})
	recorded := filepath.Join(t.TempDir(), "worker-1")
	if err := discoverytest.Examples()["example1"].Write(recorded); err != nil {
		t.Fatal(err)
	}
	var asked []string
	deps := osdeps.Deps{
		Hostname: func() (string, error) { return "n", nil },
		Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
			return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"}}}, nil
		},
		UnavailableLinkTypes: func(types []string) ([]string, error) {
			asked = append(asked, types...)
			return []string{"ipvlan"}, nil
		},
	}
	const none = "no CNI plugin of its policy can work on the node: "
	const noLinkType = none + "ipvlan: the kernel does not support links of type ipvlan"
	for line, want := range map[string]string{
		"policies test " + file + " --alone": "  ! CNI plugin ipvlan cannot work on the node, so no device is " +
			"offered for it on the node: the kernel does not support links of type ipvlan",
		"policies test " + file + " --alone -o json":          `"unusable": [`,
		"explain eth0 -f " + file:                             "no class can select it: " + noLinkType,
		"explain enp3s0f0 -f " + file + " --from " + recorded: "is offered as 1 device",
		"explain eth0": "no class can select it: " + none + "macvlan: known",
	} {
		asked = nil
		var out, errs strings.Builder
		run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, append(strings.Fields(line), "--socket",
			socket)...)
		var wantAsked []string
		if strings.Contains(line, file) && !strings.Contains(line, "--from") {
			wantAsked = []string{"ipvlan"}
		}
		if !strings.Contains(out.String(), want) || !slices.Equal(asked, wantAsked) {
			t.Errorf("%s: asked about plugins %v, want %v; want output %q:\n%s%s", line, asked, wantAsked, want,
				out.String(), errs.String())
		}
	}
}

// Without a driver and without current policies, the error describes how to provide the policies.
func TestPoliciesTestWithoutDriver(t *testing.T) {
	code, stdout, stderr := runNetdra(t, "", "policies", "test", policyFile(t, somePolicies), "--alone", "--socket",
		filepath.Join(t.TempDir(), "none.sock"))
	if code != exit.Refused || !strings.Contains(stderr, "the driver of this node does not answer") ||
		!strings.Contains(stderr, "pass the current policies with --policies FILE, or a recorded machine "+
			"with --from DIR") {
		t.Errorf("exit status %d:\n%s%s", code, stdout, stderr)
	}
}
