package cnichain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// topology parses the steps of a topology named t from YAML.
func topology(t *testing.T, steps string) *v1alpha1.NetworkTopology {
	t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "t"
	if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
		t.Fatal(err)
	}
	return topology
}

const linkThenTune = `
- {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400, note: "{{ link.interfaceName }} of {{ pod.name }}"}}
`

func deviceNamed(name string) Device {
	return Device{Pool: "n/" + name, Name: name, Request: "r", Exclusive: true, IfName: name,
		CNIs:       []string{"host-device", "macvlan"},
		Attributes: map[string]any{"ifName": name, "mtu": 1500}}
}

func TestValidateReportsEveryProblemWithItsPathAndFix(t *testing.T) {
	for name, test := range map[string]struct {
		steps string
		want  []string
	}{
		"step before its dependency": {
			`[{name: b, type: tuning, dependOn: [a]}, {name: a, type: macvlan, selector: {cel: "true"}}]`,
			[]string{"spec.steps[0].dependOn[0]", `step "b" must come after "a": move it down`}},
		"steps that depend on each other": {
			`[{name: a, type: tuning, dependOn: [c]}, {name: b, type: tuning, dependOn: [a]}, {name: c, type: ` +
				`tuning, dependOn: [b]}]`,
			[]string{"spec.steps[0].dependOn[0]",
				`step "a" must come after "c": move it down, below the steps in its dependOn; if they depend on each ` +
					`other, remove one from dependOn`}},
		"too large a number": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, config: {mtu: 99999999999999999999}}]`,
			[]string{"spec.steps[0].config.mtu", "is too large: it must fit into 64 bits"}},
		"unknown dependency": {
			`[{name: a, type: macvlan, dependOn: [x]}]`,
			[]string{"spec.steps[0].dependOn[0]", `dependOn names step "x", which does not exist`}},
		"several together": {
			`[{name: a, type: ../../bin/sh, selector: {cel: "true"}}, {name: a, type: macvlan}]`,
			[]string{"spec.steps[0].type", "bare file name", "spec.steps[1].name", "Duplicate",
				"spec.steps[1].selector.cel"}},
		"device parameter by hand": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, config: {master: eth0}}]`,
			[]string{"spec.steps[0].config.master", "set by the driver"}},
		"driver's keys": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, config: {type: x, cniVersion: "1"}}]`,
			[]string{"config.cniVersion", "config.type"}},
		"the device of the runtime configuration": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, config: {runtimeConfig: {deviceID: x}}}]`,
			[]string{"config.runtimeConfig.deviceID", "set by the driver"}},
		"ipam from elsewhere": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: ../sh}}}]`,
			[]string{"config.ipam.type", "bare file name"}},
		"root that works on another's interface": {
			`[{name: a, type: tuning, selector: {cel: "true"}}]`,
			[]string{"spec.steps[0].dependOn", "tuning works on an interface that another step made"}},
		"template of no ancestor": {
			`[{name: a, type: macvlan, selector: {cel: "true"}}, {name: b, type: macvlan, selector: {cel: "true"},` +
				` config: {x: ["{{ a.mac }}"]}}]`,
			[]string{"spec.steps[1].config", "config.x[0]", `"a" is not a step that this one depends on`}},
		"template of an unknown field": {
			`[{name: a, type: macvlan, selector: {cel: "true"}}, {name: b, type: tuning, dependOn: [a], config: ` +
				`{x: "{{ a.colour }}"}}]`,
			[]string{`a step has no such field`}},
		"the pod's own interface": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, ifName: eth0}]`,
			[]string{"spec.steps[0].ifName", "belongs to the pod's own network"}},
		"interface name too long": {
			`[{name: a, type: macvlan, selector: {cel: "true"}, ifName: a234567890123456}]`,
			[]string{"1 to 15 characters"}},
		"step named like a word": {
			`[{name: device, type: macvlan, selector: {cel: "true"}}]`,
			[]string{"template language"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := Validate(topology(t, test.steps), DefaultSchemas()).ToAggregate()
			if text == nil || !contains(text.Error(), test.want...) {
				t.Errorf("got problems\n%v\nwant all of %q", text, test.want)
			}
		})
	}
}

func TestCompile(t *testing.T) {
	plan, problems := Compile(topology(t, linkThenTune), Binding{
		Claim: Claim{Namespace: "ns", Name: "c", UID: "u"}, Node: "n", Schemas: DefaultSchemas(),
		Plugins: plugins("host-device", "tuning", "host-local"),
		Devices: []RootDevice{{Step: "link", Device: deviceNamed("up0")}, {Step: "link", Device: deviceNamed("up1")}},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(plan.Steps) != 4 {
		t.Fatalf("got %d steps, want two for each of two instances", len(plan.Steps))
	}
	second := plan.Steps[2:]
	if second[0].Instance != 1 || second[0].DeviceParameter != "device" || second[0].DeviceValue != "up1" ||
		!second[0].Makes || second[0].Network != "t.link" {
		t.Errorf("wrong root step of the second instance: %+v", second[0])
	}
	if second[1].DependsOn[0] != 2 || second[1].Makes || !second[1].PrevResult || second[1].CNIVersion != "1.1.0" {
		t.Errorf("wrong derived step of the second instance: %+v", second[1])
	}
}

func TestCompilePrefersThePCIAddress(t *testing.T) {
	device := deviceNamed("up0")
	device.PCIAddress = "0000:03:00.1"
	plan, problems := Compile(topology(t, linkThenTune), Binding{Schemas: DefaultSchemas(),
		Plugins: plugins("host-device", "tuning", "host-local"), Devices: []RootDevice{{Step: "link", Device: device}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if step := plan.Steps[0]; step.DeviceParameter != "pciBusID" || step.DeviceValue != "0000:03:00.1" {
		t.Errorf("device parameter is %s=%s, want pciBusID=0000:03:00.1", step.DeviceParameter, step.DeviceValue)
	}
}

// If a PCI function has several interfaces, its address does not identify any of them, so plugins get the interface
// name.
func TestCompileNamesPortsOfOneFunction(t *testing.T) {
	if got := DefaultSchemas().ByPCIAddress(); !slices.Equal(got, []string{"ovn-k8s-cni-overlay", "sriov"}) {
		t.Errorf("plugins that accept only PCI addresses = %v, want ovn-k8s-cni-overlay and sriov", got)
	}
	device := deviceNamed("eth0")
	device.PCIAddress, device.SharedFunction = "0000:05:00.0", true
	device.CNIs = []string{"host-device", "netdev", "new-plugin"}
	roots := []RootDevice{{Step: "a", Device: device}}
	for plugin, want := range map[string]string{"host-device": "device=eth0", "netdev": "device=eth0",
		"new-plugin": "="} {
		plan, problems := Compile(topology(t, `[{name: a, type: `+plugin+`, selector: {cel: "true"}}]`),
			Binding{Schemas: DefaultSchemas(), Plugins: plugins(plugin), Devices: roots})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		step := plan.Steps[0]
		if got := step.DeviceParameter + "=" + step.DeviceValue; got != want || step.RuntimeDeviceID != "" {
			t.Errorf("%s got %s and device ID %q, want %s and no device ID", plugin, got, step.RuntimeDeviceID, want)
		}
	}
	_, problems := Compile(topology(t, `[{name: a, type: host-device, driver: vfio-pci, selector: {cel: "true"}}]`),
		Binding{Schemas: DefaultSchemas(), Plugins: plugins("host-device"), Devices: roots})
	if !strings.Contains(fmt.Sprint(problems), "cannot be bound to a driver") {
		t.Errorf("want a problem for a driver that binds both interfaces, got %v", problems)
	}
}

func TestCompileProblems(t *testing.T) {
	twoRoots := `[{name: a, type: macvlan, selector: {cel: "true"}}, {name: b, type: macvlan, selector: {cel: ` +
		`"true"}, ifName: fixed0}]`
	for name, test := range map[string]struct {
		steps   string
		devices []RootDevice
		plugins map[string]Plugin
		want    []string
	}{
		"missing root step": {twoRoots, []RootDevice{{Step: "a", Device: deviceNamed("x")}}, plugins("macvlan"),
			[]string{"spec.steps[1]", `no device for root step "b": add a request with deviceClassName t-b`}},
		"unequal counts": {twoRoots,
			[]RootDevice{{Step: "a", Device: deviceNamed("x")}, {Step: "a", Device: deviceNamed("y")},
				{Step: "b", Device: deviceNamed("z")}}, plugins("macvlan"),
			[]string{"request the same count"}},
		"fixed name for two": {twoRoots,
			[]RootDevice{{Step: "a", Device: deviceNamed("w")}, {Step: "a", Device: deviceNamed("x")},
				{Step: "b", Device: deviceNamed("y")}, {Step: "b", Device: deviceNamed("z")}}, plugins("macvlan"),
			[]string{"spec.steps[1].ifName", "several instances"}},
		"renamed step": {twoRoots,
			[]RootDevice{{Step: "a", Device: deviceNamed("w")}, {Step: "b", Device: deviceNamed("x")},
				{Step: "old", Device: deviceNamed("y")}}, plugins("macvlan"),
			[]string{"old (the topology changed after scheduling"}},
		"plugin not on the node": {linkThenTune, []RootDevice{{Step: "link", Device: deviceNamed("x")}},
			plugins("host-device", "host-local"),
			[]string{"spec.steps[1].type", "no such CNI plugin on node n: install it in /opt/cni/bin or " +
				"/usr/lib/cni, or look elsewhere)"}},
		"IPAM plugin not on the node": {linkThenTune, []RootDevice{{Step: "link", Device: deviceNamed("x")}},
			plugins("host-device", "tuning"),
			[]string{"spec.steps[0].config.ipam.type", `"host-local (no such CNI plugin on node n: install it in`}},
		"kernel without a type of links": {linkThenTune, []RootDevice{{Step: "link", Device: deviceNamed("x")}},
			plugins("host-device", "host-local", "tuning"),
			[]string{`spec.steps[1].type: Invalid value: "tuning": cannot work on node n: no vlan`}},
		"plugin not allowed": {`[{name: a, type: bridge, selector: {cel: "true"}}]`,
			[]RootDevice{{Step: "a", Device: deviceNamed("x")}}, plugins("bridge"),
			[]string{`Unsupported value: "bridge"`, "host-device"}},
		"attribute that the device lacks": {`[{name: a, type: macvlan, selector: {cel: "true"}, config: {x: "{{ ` +
			`device.nope }}"}}]`, []RootDevice{{Step: "a", Device: deviceNamed("x")}}, plugins("macvlan"),
			[]string{`has no attribute "nope"; it has ifName, mtu`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Compile(topology(t, test.steps),
				Binding{Claim: Claim{Namespace: "ns", Name: "c"}, Node: "n", Schemas: DefaultSchemas(),
					Plugins: test.plugins, Dirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, DirsHelp: "look elsewhere",
					KernelLacks: map[string]string{"tuning": "no vlan", "vlan": "no vlan"}, Devices: test.devices})
			if text := problems.ToAggregate(); text == nil || !contains(text.Error(), test.want...) {
				t.Errorf("got problems\n%v\nwant all of %q", text, test.want)
			}
		})
	}
}

// Plugins identify a scalable function, which has no PCI address, by the name of its auxiliary device or its link.
func TestCompileIdentifiesScalableFunctions(t *testing.T) {
	for plugin, want := range map[string]string{"host-device": "device=up0", "new-plugin": "=",
		"ovn-k8s-cni-overlay": "deviceID=mlx5_core.sf.2"} {
		device := deviceNamed("up0")
		device.AuxiliaryDevice, device.Exclusive, device.CNIs = "mlx5_core.sf.2", true, []string{plugin}
		planned := PlanStep{Type: plugin}
		(&compiler{binding: Binding{Schemas: DefaultSchemas()}}).giveDevice(&planned, &device)
		if got := planned.DeviceParameter + "=" + planned.DeviceValue; got != want {
			t.Errorf("%s got %s, want %s", plugin, got, want)
		}
		if plugin == "new-plugin" && planned.RuntimeDeviceID != "mlx5_core.sf.2" {
			t.Errorf("%s got device ID %q, want mlx5_core.sf.2", plugin, planned.RuntimeDeviceID)
		}
	}
}

func TestCompileWithoutSchemaPassesTheDeviceID(t *testing.T) {
	device := deviceNamed("x")
	device.PCIAddress, device.CNIs = "0000:01:00.0", []string{"new-plugin"}
	plan, problems := Compile(topology(t, `
- {name: a, type: new-plugin, selector: {cel: "true"}, config: {mtu: "{{ device.mtu }}", note: "{{ pod.name }}", runtimeConfig: {portMappings: [9007199254740993]}}}
`),
		Binding{Schemas: DefaultSchemas(), Plugins: plugins("new-plugin"),
			Devices: []RootDevice{{Step: "a", Device: device}}})
	if len(problems) > 0 || plan.Steps[0].RuntimeDeviceID != "0000:01:00.0" {
		t.Fatalf("plan = %+v, problems = %v, want device ID 0000:01:00.0", plan, problems)
	}
	const want = `{"mtu":1500,"note":"{{ pod.name }}","runtimeConfig":{"deviceID":"0000:01:00.0",` +
		`"portMappings":[9007199254740993]}}`
	if preview, err := Preview(&plan.Steps[0]); err != nil || string(preview) != want {
		t.Errorf("preview = %s, %v\nwant      %s", preview, err, want)
	}
}

// Macvlan and ipvlan cannot use the same link. The check also works across two plans, since the second step may belong
// to a different claim.
func TestPlansThatClash(t *testing.T) {
	plan := func(cniType, link string) *PlanStep {
		device := deviceNamed(link)
		device.CNIs = []string{"macvlan", "ipvlan"}
		plan, problems := Compile(topology(t,
			fmt.Sprintf(`[{name: link, type: %s, selector: {cel: "true"}}]`, cniType)), Binding{
			Schemas: DefaultSchemas(), Plugins: map[string]Plugin{cniType: {Path: "/p", Versions: []string{"1.0.0"}}},
			Devices: []RootDevice{{Step: "link", Device: device}},
		})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return &plan.Steps[0]
	}
	macvlan, ipvlan, elsewhere := plan("macvlan", "eth1"), plan("ipvlan", "eth1"), plan("ipvlan", "eth2")
	if !macvlan.Clashes(ipvlan) || !ipvlan.Clashes(macvlan) {
		t.Error("macvlan and ipvlan do not conflict on the same device")
	}
	if macvlan.Clashes(macvlan) || macvlan.Clashes(elsewhere) {
		t.Error("macvlan conflicts with itself, or with a plugin on another device")
	}
}

// A plugin and its IPAM plugin receive the same configuration, so they must support a common CNI version.
func TestVersionIsThatOfTheAddressPluginToo(t *testing.T) {
	steps := `[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: whereabouts}}}]`
	for want, ipam := range map[string][]string{"1.0.0": {"0.3.1", "1.0.0"}, "": {"0.2.0", "0.1.0"}} {
		plan, problems := Compile(topology(t, steps), Binding{
			Schemas: DefaultSchemas(), Devices: []RootDevice{{Step: "a", Device: deviceNamed("x")}},
			Plugins: map[string]Plugin{"macvlan": {Path: "/m", Versions: []string{"0.4.0", "1.0.0", "1.1.0"}},
				"whereabouts": {Path: "/w", Versions: ipam}},
		})
		if want != "" && (len(problems) > 0 || plan.Steps[0].CNIVersion != want) {
			t.Errorf("plan = %+v, problems = %v, want version %s", plan, problems, want)
		}
		if want == "" && (len(problems) == 0 || !contains(problems.ToAggregate().Error(), "whereabouts", "0.2.0")) {
			t.Errorf("problems = %v, want one for whereabouts 0.2.0", problems)
		}
	}
}

func TestTemplates(t *testing.T) {
	values := map[string]any{"a.text": `x","evil":"y`, "a.flag": true, "a.list": []any{"p", "q"},
		"a.again": "{{ a.flag }}", "ips": "10.0.0.1/24"}
	resolve := func(tok template.Token) (any, error) {
		if tok.Field == "ips" && tok.Index == 2 && tok.Part == "address" {
			return values["ips"], nil
		}
		return values[tok.String()], nil
	}
	for input, want := range map[string]string{
		`{"v":"{{ a.flag }}"}`:                `{"v":true}`,
		`{"v":"is {{a.flag}}!"}`:              `{"v":"is true!"}`,
		`{"v":["{{ a.list }}"]}`:              `{"v":[["p","q"]]}`,
		`{"v":"{{ a.text }}"}`:                `{"v":"x\",\"evil\":\"y"}`,
		`{"v":"<{{ a.again }}>"}`:             `{"v":"<{{ a.flag }}>"}`,
		`{"v":"{{ a.ips[2].address }}"}`:      `{"v":"10.0.0.1/24"}`,
		`{"{{ a.flag }}":9007199254740993}`:   `{"{{ a.flag }}":9007199254740993}`,
		`{"v":"{{ a.flag }}{{ a.flag }} {{"}`: `{"v":"truetrue {{"}`,
	} {
		got, err := template.New().RenderJSON([]byte(input), resolve)
		if want = unescape(want); err != nil || unescape(string(got)) != want {
			t.Errorf("%s rendered to %s, %v; want %s", input, got, err, want)
		}
	}
	for _, broken := range []string{"{{ nothing }}", "{{ a b }}", "{{}}", "{{ a.x[1000] }}"} {
		if _, err := template.New().RenderString(broken, "ifName", resolve); err == nil {
			t.Errorf("%s was accepted, want an error", broken)
		}
	}
}

// unescape reverses the escaping of < and > by Go's JSON encoder.
func unescape(text string) string {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return text
	}
	out, _ := yaml.Marshal(value)
	return string(out)
}

func FuzzTemplatesChangeOnlyTheirOwnValue(f *testing.F) {
	f.Add("plain", `","type":"evil`)
	f.Add("{{ pod.name }}", "\u2028\x00")
	f.Fuzz(func(t *testing.T, first, second string) {
		resolve := func(tok template.Token) (any, error) {
			if tok.Field == "first" {
				return first, nil
			}
			return second, nil
		}
		out, err := template.New().RenderJSON(
			[]byte(`{"type":"ok","a":"{{ s.first }}","b":{"c":["x{{ s.second }}y"]}}`), resolve,
		)
		if err != nil {
			t.Fatal(err)
		}
		value, err := template.DecodeJSON(out)
		object, isObject := value.(map[string]any)
		if err != nil || !isObject || len(object) != 3 || object["type"] != "ok" ||
			len(object["b"].(map[string]any)) != 1 {
			t.Errorf("values %q and %q rendered to %s", first, second, out)
		}
	})
}

func TestRawExtensionIsOptional(t *testing.T) {
	step := v1alpha1.Step{Config: &runtime.RawExtension{}}
	if rawConfig(&step) != nil || IPAMType(nil) != "" || step.WantedInterfaceName() != "" {
		t.Error("an empty configuration was not treated as empty")
	}
}

// A device without an interface can be attached only if the step sets a driver such as vfio-pci, and the driver can be
// set only for an exclusive PCI function.
func TestCompileDrivers(t *testing.T) {
	const (
		oneStep = `[{name: link, type: host-device, selector: {cel: "true"}}]`
		vfio    = `[{name: link, type: host-device, selector: {cel: "true"}, driver: vfio-pci}]`
	)
	for name, test := range map[string]struct {
		steps         string
		change        func(*Device)
		bindTo, wrong string
	}{
		"own":          {steps: oneStep, change: func(*Device) {}},
		"vfio":         {steps: vfio, change: func(*Device) {}, bindTo: "vfio-pci"},
		"vfio already": {steps: vfio, change: func(d *Device) { d.IfName = "" }, bindTo: "vfio-pci"},
		"no interface": {steps: oneStep, change: func(d *Device) { d.IfName = "" }, wrong: "has no interface"},
		"no hardware": {steps: vfio, change: func(d *Device) { d.PCIAddress = "" },
			wrong: "it is not an exclusively allocated PCI function"},
		"shared with others": {steps: vfio, change: func(d *Device) { d.Exclusive = false },
			wrong: "it is not an exclusively allocated PCI function"},
	} {
		t.Run(name, func(t *testing.T) {
			device := deviceNamed("up0")
			device.PCIAddress = "0000:03:00.1"
			test.change(&device)
			plan, problems := Compile(topology(t, test.steps),
				Binding{Schemas: DefaultSchemas(), Plugins: plugins("host-device"),
					Devices: []RootDevice{{Step: "link", Device: device}}})
			if test.wrong != "" {
				if text := problems.ToAggregate(); text == nil ||
					!contains(text.Error(), test.wrong, "spec.steps[0].driver") {
					t.Errorf("problems = %v, want %q", text, test.wrong)
				}
				return
			}
			if len(problems) > 0 || plan.Steps[0].Device.BindTo != test.bindTo {
				t.Errorf("BindTo = %q, want %q: %v", plan.Steps[0].Device.BindTo, test.bindTo, problems)
			}
		})
	}
}

// The plan contains devices that other components attach, but none of its steps is run: no plugin has to be installed,
// a function may have a userspace driver, and claims cannot set parameters, since no component would read the
// parameters.
func TestCompileForOthers(t *testing.T) {
	external := topology(t, `[{name: a, type: host-device, selector: {cel: "true"}}, {name: b, type: macvlan, `+
		`selector: {cel: "true"}}]`)
	external.Spec.Attachment = v1alpha1.AttachmentExternal
	function, link := deviceNamed("up0"), deviceNamed("up1")
	function.PCIAddress, function.IfName = "0000:03:00.1", ""
	devices := []RootDevice{{Step: "a", Device: function}, {Step: "b", Device: link}}
	plan, problems := Compile(external, Binding{Schemas: DefaultSchemas(), Devices: devices})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(plan.Steps) > 0 || len(plan.External) != 2 || plan.External[0].Device.PCIAddress != "0000:03:00.1" ||
		plan.External[1].Type != "macvlan" || len(plan.DeviceSteps()) != 2 {
		t.Errorf("wrong plan: %+v", plan)
	}
	if types := Types(external); len(types) > 0 {
		t.Errorf("plugins to run = %v, want none", types)
	}
	devices[1].Parameters = []v1alpha1.ClaimParameters{{MAC: "02:00:00:00:00:01"}}
	if _, problems := Compile(external, Binding{Schemas: DefaultSchemas(), Devices: devices}); len(problems) != 1 ||
		!contains(problems[0].Error(), "which the topology does not allow") {
		t.Errorf("problems = %v, want one for the MAC address", problems)
	}
	devices[1].Parameters, devices[1].Device.CNIs = nil, []string{"ipvlan"}
	if _, problems := Compile(external, Binding{Schemas: DefaultSchemas(), Devices: devices}); len(problems) != 1 ||
		!contains(problems[0].Error(), "spec.steps[1].type", "ipvlan") {
		t.Errorf("problems = %v, want one for the type ipvlan", problems)
	}
}
