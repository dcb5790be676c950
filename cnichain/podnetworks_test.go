package cnichain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestParseSelections(t *testing.T) {
	for text, want := range map[string][]Selection{
		"":                     nil,
		"a":                    {{"ns/a", "net1"}},
		" a , other/b@fast0,a": {{"ns/a", "net1"}, {"other/b", "fast0"}, {"ns/a", "net3"}},
		`[{"name": "a"}]`:      {{"ns/a", "net1"}},
		`[{"name":"a","interface":"x"},{"name":"b","namespace":"other","mac":"02:00:00:00:00:01"}]`: {{"ns/a", "x"},
			{"other/b", "net2"}},
	} {
		got, err := ParseSelections(text, "ns")
		if diff := gocmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"a,,b", "a/b/c", "@net1", "[{", `[{"namespace": "ns"}]`, `{"name": "a"}`, "a@b@c/d",
		"a,B", "a_b", "/a", "a@"} {
		if got, err := ParseSelections(text, "ns"); err == nil {
			t.Errorf("ParseSelections(%q) returned %v, want an error", text, got)
		}
	}
}

func FuzzParseSelections(f *testing.F) {
	for _, seed := range []string{"", "a", "ns/a@x,b", `[{"name":"a"}]`, "[", "{", ",", "@/", `["a"]`, "[null]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		selections, err := ParseSelections(text, "ns")
		for _, selection := range selections {
			if err != nil || strings.Count(selection.Network, "/") != 1 || selection.IfName == "" {
				t.Errorf("%q: got %+v and %v", text, selection, err)
			}
		}
	})
}

func TestSelectNetworks(t *testing.T) {
	const key = "k8s.v1.cni.cncf.io/networks"
	want := func(network, ifName string) WantedNetwork {
		return WantedNetwork{IfName: ifName, Step: "step " + network,
			PodNetwork: PodNetwork{Annotation: key, Name: network, NamesInterface: true}}
	}
	anyName := func(network, ifName string) WantedNetwork {
		wanted := want(network, ifName)
		wanted.NamesInterface = false
		return wanted
	}
	for name, test := range map[string]struct {
		annotation string
		wanted     []WantedNetwork
		names      []string
		problems   []string
	}{
		"by position": {"x/other,a", []WantedNetwork{want("ns/a", "")}, []string{"net2"}, nil},
		"by name":     {"a@fast0", []WantedNetwork{want("ns/a", "")}, []string{"fast0"}, nil},
		"two of one network": {"a,a@z", []WantedNetwork{want("ns/a", ""), want("ns/a", "")},
			[]string{"net1", "z"}, nil},
		"the named one first": {"a@z,a", []WantedNetwork{want("ns/a", ""), want("ns/a", "z")},
			[]string{"net2", "z"}, nil},
		"any name": {"a@z", []WantedNetwork{anyName("ns/a", ""), anyName("ns/a", "x")},
			[]string{"", "x"}, nil},
		"no step wants it": {"[", nil, []string{}, nil},
		"no annotation": {"", []WantedNetwork{want("ns/a", "")}, nil,
			[]string{"must select network ns/a", "the pod has no such annotation; add ns/a to the annotation"}},
		"another name": {"a", []WantedNetwork{want("ns/a", "fast0")}, nil,
			[]string{"it selects ns/a@net1; add ns/a@fast0 to the annotation"}},
		"too few": {"a", []WantedNetwork{want("ns/a", ""), want("ns/a", "")}, nil, []string{"it selects ns/a@net1"}},
		"two are missing": {"c", []WantedNetwork{want("ns/a", ""), want("ns/b", "")}, nil,
			[]string{"add ns/a to", "add ns/b to"}},
		"damaged": {"[", []WantedNetwork{want("ns/a", "")}, nil, []string{"cannot read the pod's annotation " + key}},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := SelectNetworks(test.wanted, map[string]string{key: test.annotation}, "ns")
			if (err != nil) != (len(test.problems) > 0) {
				t.Fatalf("unexpected result: error = %v", err)
			}
			for _, problem := range test.problems {
				if !strings.Contains(err.Error(), problem) {
					t.Errorf("error = %q, want it to contain %q", err, problem)
				}
			}
			if err == nil {
				if diff := gocmp.Diff(test.names, names); diff != "" {
					t.Errorf("wrong names (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// selecting returns a topology with one OVN-Kubernetes step.
func selecting(t *testing.T, config string) *v1alpha1.NetworkTopology {
	t.Helper()
	return topology(t, fmt.Sprintf(`[{name: net, type: ovn-k8s-cni-overlay, selector: {cel: "true"}, config: %s}]`,
		config))
}

func TestDefine(t *testing.T) {
	const nad = `{"type": "ovn-k8s-cni-overlay", "name": "tenant", "netAttachDefName": "ns/net", "topology": "localnet", ` +
		`"physicalNetworkName": "phys", "mtu": 1300, "subnets": "192.0.2.0/24", "deviceID": "0000:00:00.0", "logFile": "/etc/passwd"%s}`
	with := func(more string) string { return strings.Replace(nad, "%s", more, 1) }
	plain := with("")
	list := `{"name": "tenant", "plugins": [{"type": "ovn-k8s-cni-overlay", "netAttachDefName": "ns/net", ` +
		`"topology": "layer2"}]}`
	for name, test := range map[string]struct {
		step, definition, network string
		want, problem             string
	}{
		"valid content of a definition": {definition: plain,
			want: `{"mtu":1300,"netAttachDefName":"ns/net","physicalNetworkName":"phys","topology":"localnet"}`},
		"in the pod's namespace": {step: `{"netAttachDefName": "{{ pod.namespace }}/net"}`, definition: plain,
			want: `{"mtu":1300,"netAttachDefName":"{{ pod.namespace }}/net","physicalNetworkName":"phys",` +
				`"topology":"localnet"}`},
		"a list": {definition: list, want: `{"netAttachDefName":"ns/net","topology":"layer2"}`},
		"the same, twice": {step: `{"netAttachDefName": "ns/net", "subnets": "192.0.2.0/24", "topology": "layer2"}`,
			definition: strings.Replace(plain, "localnet", "layer2", 1), network: "tenant",
			want: `{"mtu":1300,"netAttachDefName":"ns/net","physicalNetworkName":"phys","subnets":"192.0.2.0/24",` +
				`"topology":"layer2"}`},
		"not there": {problem: "no such NetworkAttachmentDefinition"},
		"other subnets": {step: `{"netAttachDefName": "ns/net", "subnets": "10.0.0.0/8"}`, definition: plain,
			problem: "the step has subnets 10.0.0.0/8, and its NetworkAttachmentDefinition 192.0.2.0/24; remove it"},
		"another network": {definition: plain, network: "mine",
			problem: `the step has network mine, and its NetworkAttachmentDefinition "tenant"`},
		"another plugin": {definition: `{"type": "macvlan"}`,
			problem: "does not configure only ovn-k8s-cni-overlay"},
		"two plugins": {problem: "does not configure only ovn-k8s-cni-overlay",
			definition: `{"plugins": [{"type": "ovn-k8s-cni-overlay"}, {"type": "tuning"}]}`},
		"no JSON":       {definition: `{`, problem: "not JSON"},
		"no object":     {definition: `[1]`, problem: "does not configure only"},
		"a plugin list": {definition: `{"plugins": [1]}`, problem: "does not configure only"},
		"a template": {definition: with(`, "role": "{{ pod.name }}"`),
			problem: "contains a {{ template }}"},
		"a template behind escapes": {definition: with(`, "role": "\u007b\u007b pod.name }}"`),
			problem: "contains a {{ template }}"},
		"of another name": {definition: strings.Replace(plain, "ns/net", "ns/other", 1),
			problem: "the netAttachDefName in its NetworkAttachmentDefinition is ns/other; make it ns/net"},
		"a primary network": {definition: with(`, "role": "primary"`),
			problem: "Unsupported value"},
		"the network of all pods": {problem: "spec.steps[0].config.topology: Required",
			definition: `{"type": "ovn-k8s-cni-overlay", "netAttachDefName": "ns/net", "name": "x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			topology := selecting(t, cmp.Or(test.step, `{"netAttachDefName": "ns/net"}`))
			topology.Spec.Steps[0].Network = test.network
			before, _ := json.Marshal(topology)
			configs := map[string]string{}
			if test.definition != "" {
				configs["ns/net"] = test.definition
			}
			if wanted := Definitions(topology, DefaultSchemas(), "ns"); !gocmp.Equal(wanted, []string{"ns/net"}) {
				t.Errorf("definitions = %v, want ns/net", wanted)
			}
			defined, problems := Define(topology, DefaultSchemas(), "ns", configs)
			if test.problem != "" {
				if len(problems) != 1 || !strings.Contains(problems[0].Error(), test.problem) {
					t.Errorf("problems = %v, want %q", problems, test.problem)
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			step := defined.Spec.Steps[0]
			if got := string(step.Config.Raw); got != test.want || step.Network != "tenant" {
				t.Errorf("network = %s, configuration\n%s\nwant\n%s", step.Network, got, test.want)
			}
			if after, _ := json.Marshal(topology); string(after) != string(before) {
				t.Errorf("the topology was changed: %s", after)
			}
		})
	}
}

// A topology without a network name, or with a name that depends on the pod's name or the device, is rejected both by
// the API and by nodes.
func TestNetworkMustBeNamed(t *testing.T) {
	for name, problem := range map[string]string{
		"":                        "spec.steps[0].config.netAttachDefName: Required",
		"net":                     "must be namespace/name",
		"ns/..":                   "must be namespace/name",
		"ns/{{ pod.name }}":       "may only contain {{ pod.namespace }}",
		"{{ device.ifName }}/net": "may only contain {{ pod.namespace }}",
	} {
		topology := selecting(t, fmt.Sprintf(`{topology: layer2, netAttachDefName: %q}`, name))
		written := CheckContracts(topology, DefaultSchemas()).ToAggregate()
		if written == nil || !strings.Contains(written.Error(), problem) {
			t.Errorf("%q: got problems %v, want %q", name, written, problem)
		}
		device := deviceNamed("up0")
		device.CNIs = []string{"ovn-k8s-cni-overlay"}
		_, problems := Compile(topology, Binding{Claim: Claim{Namespace: "ns", Name: "c", UID: "u"},
			Schemas: DefaultSchemas(), Plugins: plugins("ovn-k8s-cni-overlay"),
			Devices: []RootDevice{{Step: "net", Device: device}}})
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), problem) {
			t.Errorf("compiling %q: got problems %v, want %q", name, problems, problem)
		}
		if wanted := PodNetworks(topology, DefaultSchemas(), "ns"); len(wanted) > 0 {
			t.Errorf("%q: wanted networks = %v, want none", name, wanted)
		}
	}
	topology := selecting(t, `{"netAttachDefName": "{{ claim.namespace }}/net"}`)
	if problems := CheckContracts(topology, DefaultSchemas()); len(problems) > 0 {
		t.Errorf("setting a value that the definition also contains caused problems: %v", problems)
	}
	topology.Spec.Steps[0].IfName = "{{ pod.name }}"
	if problems := CheckContracts(topology, DefaultSchemas()); len(problems) != 1 ||
		!strings.Contains(problems[0].Error(), "remove ifName") {
		t.Errorf("problems for a name that is known too late = %v", problems)
	}
}
