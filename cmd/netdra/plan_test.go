package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

const twoRoots = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: pair}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: "true"}, ifName: left}
  - {name: b, type: host-device, selector: {cel: "true"}}
  - name: both
    type: bond
    dependOn: [a, b]
    config: {name: bond0, mode: active-backup, miimon: "100", links: [{name: "{{ a.interfaceName }}"}, {name: "{{ b.interfaceName }}"}], linksInContainer: true}
  - {name: tagged, type: vlan, dependOn: [both], ifName: "{{ both.interfaceName }}.5", config: {vlanId: 5, master: "{{ both.interfaceName }}", linkInContainer: true}}
`

// A plugin that only attaches networks selected by the pod gets the network name from the annotation.
func TestPlanOfASelectedNetwork(t *testing.T) {
	f := newFake(t)
	schema := f.write("s.yaml", `apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: mine}
spec:
  cniType: macvlan
  deviceParameters: [{parameter: master, attribute: ifName}]
  podNetworks: {annotation: example.org/networks, parameter: net, interfaceNames: selected}
`)
	topology := f.write("t.yaml", `apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec: {steps: [{name: a, type: macvlan, selector: {cel: "true"}, config: {net: "{{ pod.namespace }}/blue"}}]}
`)
	arguments := []string{"plan", topology, "--schemas", schema, "-d", "up0"}
	code, out, errs := f.run(t.Context(), append(arguments, "--annotation", "example.org/networks=red,blue")...)
	if code != exit.OK || !strings.Contains(out, "makes net2") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	code, out, errs = f.run(t.Context(), arguments...)
	if code == exit.OK || !strings.Contains(errs, "the pod's annotation example.org/networks must select network "+
		"default/blue for it") {
		t.Errorf("without the pod's annotation: exit status %d, want a refusal\n%s%s", code, out, errs)
	}
}

func TestPlan(t *testing.T) {
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "plan", f.write("t.yaml", linkThenTune), "-d", "up1")
	f.expect(code, exit.OK, out+errs, `
Topology moved; a claim requests deviceClassName moved-link

1. link (host-device)
   plugin      DIR/cni/host-device, called with CNI 1.1.0
   device      up1, exclusive: it must be unchanged at the end
   interface   makes net1
   network     moved.link
   prevResult  no
   config
     args:
       mtu: 9000
       note: up1 of {{ pod.name }}
     ipam:
       subnet: 10.99.0.0/24
       type: host-local
     pciBusID: 0000:3b:02.1

2. tune (tuning)
   plugin      DIR/cni/tuning, called with CNI 1.1.0
   after       link
   interface   works on net1
   network     moved.tune.b46151e9
   prevResult  yes, the results of link
   config
     mtu: 1400
`)
	f.expectNode(clean)
}

// A plan changes nothing, so it also works for a link that a run would reject, and shows the error from the run.
func TestPlanOfTheDefaultRoute(t *testing.T) {
	f := newFake(t)
	f.facts.Devices[1].DefaultRoute = true
	const remark = "chain run rejects this: --device link=up0: it carries this machine's default route"
	for want, arguments := range map[string][]string{
		"! " + remark:                    nil,
		`"runRefuses": [`:                {"-o", "json"},
		"device      up0, exclusive: it": {"--force"},
	} {
		code, out, errs := f.run(t.Context(), append([]string{"plan", f.write("t.yaml", linkThenTune), "-d", "up0"},
			arguments...)...)
		if code != exit.OK || !strings.Contains(out, want) {
			t.Errorf("%v: exit status %d\n%s%s", arguments, code, out, errs)
		}
		if forced := slices.Contains(arguments, "--force"); forced && strings.Contains(out, remark) {
			t.Errorf("%v: the remark is printed despite --force\n%s", arguments, out)
		}
	}
	f.expectNode(clean)
}

func TestPlanOfSeveralRootsAndNames(t *testing.T) {
	f := newFake(t)
	if err := f.node.Pin("", "/run/netns/blue"); err != nil {
		t.Fatal(err)
	}
	f.node.AddPodLink("/run/netns/blue", "net1")
	code, out, errs := f.run(t.Context(), "plan", f.write("t.yaml", twoRoots), "-d", "a=br0", "-d", "b=up0", "-o",
		"json", "--netns", "blue")
	if code != exit.OK || errs != "" {
		t.Fatalf("exit status %d\n%s", code, errs)
	}
	var got struct {
		DeviceClasses []string
		Steps         []struct {
			Name, Interface              string
			Makes, PrevResult, Exclusive bool
			After                        []string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	lines := got.DeviceClasses
	for _, step := range got.Steps {
		encoded, err := json.Marshal(step)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(encoded))
	}
	want := []string{
		"pair-a", "pair-b",
		`{"Name":"a","Interface":"left","Makes":true,"PrevResult":false,` +
			`"Exclusive":false,"After":null}`,
		`{"Name":"b","Interface":"net2","Makes":true,"PrevResult":false,` +
			`"Exclusive":true,"After":null}`,
		`{"Name":"both","Interface":"bond0","Makes":true,` +
			`"PrevResult":false,"Exclusive":false,"After":["a","b"]}`,
		`{"Name":"tagged","Interface":"","Makes":true,` +
			`"PrevResult":false,"Exclusive":false,"After":["both"]}`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRefuses(t *testing.T) {
	f := newFake(t)
	pair := f.write("pair.yaml", twoRoots)
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"which step": {arguments: []string{pair, "-d", "up0"},
			want: "several steps use a device; use STEP=up0 with one of a, b"},
		"a root less": {arguments: []string{pair, "-d", "b=up0"}, want: "instead of a claim, set --device a=LINK"},
		"no plugin": {arguments: []string{f.write("n.yaml", strings.ReplaceAll(linkThenTune, "tuning", "nowhere")),
			"-d", "up0"}, want: "or name its directory with --cni-path; the driver's own, links to dra-network-cni, " +
			"are also found in DIR/driver)"},
		"nothing to run": {arguments: []string{f.write("e.yaml", `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: theirs}
spec:
  attachment: External
  steps: [{name: a, type: macvlan, selector: {cel: "true"}}]
`), "-d", "up0"}, want: "topology theirs runs no plugins (attachment: External)"},
		"no attribute": {arguments: []string{f.write("a.yaml",
			strings.ReplaceAll(linkThenTune, "device.mtu", "device.colour")), "-d", "up0"},
			want: `device up0 has no attribute "colour"`},
		"twice one name": {
			arguments: []string{pair, "-d", "a=br0", "-d", "a=br0", "-d", "b=up0", "-d", "b=up1"},
			want:      "several instances cannot have the same fixed interface name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := f.run(t.Context(), append([]string{"plan"}, test.arguments...)...)
			if code != exit.Refused || out != "" || !strings.Contains(errs, test.want) {
				t.Errorf("exit status %d\n%s%s\nwant %q", code, out, errs, test.want)
			}
		})
	}
}

// The driver's own plugins are found without --cni-path.
func TestDriversPluginsAreFound(t *testing.T) {
	f := newFake(t)
	topology := f.write("t.yaml", strings.ReplaceAll(linkThenTune, "type: tuning", "type: drivers"))
	for _, command := range []string{"plan", "run"} {
		code, out, errs := f.run(t.Context(), command, topology, "-d", "up0", "--cni-path", "/nowhere")
		if code != exit.OK {
			t.Errorf("%s: exit status %d\n%s%s", command, code, out, errs)
		}
	}
}

// The plan shows the exact configuration that the engine passes to the plugin.
func TestPreviewIsWhatTheEngineRenders(t *testing.T) {
	f := newFake(t)
	topology := f.write("t.yaml",
		strings.ReplaceAll(linkThenTune, "{{ pod.name }}", "{{device.pciAddress}}/{{ device.rdma }}"))
	_, planned, _ := f.run(t.Context(), "plan", topology, "-d", "up1", "-o", "json")
	var chain chainrun.PlannedChain
	if err := json.Unmarshal([]byte(planned), &chain); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := f.run(t.Context(), "run", topology, "-d", "up1", "--keep"); code != exit.OK {
		t.Fatal(out, errs)
	}
	f.open(func(s *chainrun.RunJournal) {
		attachments, _, err := s.Chains.Load(executor.New(executor.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		var passed, shown map[string]any
		if err := json.Unmarshal(attachments["netdra-1"].Steps[0].Stdin, &passed); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(chain.Steps[0].Config, &shown); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"cniVersion", "name", "type"} { // shown on separate lines
			delete(passed, key)
		}
		if diff := cmp.Diff(passed, shown); diff != "" {
			t.Errorf("configuration passed and configuration shown differ:\n%s", diff)
		}
	})
}

// If a file contains several topologies, the name of one must be given.
func TestPlanOfSeveral(t *testing.T) {
	f := newFake(t)
	file := f.write("t.yaml", linkThenTune+"---\n"+strings.Replace(linkThenTune, "name: moved", "name: again", 1))
	code, _, errs := f.run(t.Context(), "plan", file, "-d", "up0")
	if code != exit.Refused || !strings.Contains(errs, "choose one with --name: moved, again") {
		t.Errorf("exit status %d: %s", code, errs)
	}
	if code, out, errs := f.run(t.Context(), "plan", file, "-d", "up0", "--name", "again"); code != exit.OK ||
		!strings.Contains(out, "Topology again") {
		t.Errorf("exit status %d:\n%s%s", code, out, errs)
	}
}
