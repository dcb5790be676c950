package deviceclasses

import (
	"maps"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
)

// parse parses a topology and sets a UID, as the API server does.
func parse(t *testing.T, text string) *v1alpha1.NetworkTopology {
	t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	if err := yaml.UnmarshalStrict([]byte(text), topology); err != nil {
		t.Fatalf("cannot decode the test's topology: %v", err)
	}
	topology.UID = "uid-1"
	return topology
}

const bonded = `
metadata: {name: bonded}
spec:
  steps:
  - {name: vf0, type: host-device, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}
  - {name: vf1, type: ovn.k8s-cni, selector: {cel: "true // any\n"}}
  - {name: bond0, type: bond, dependOn: [vf0, vf1], config: {mode: active-backup, miimon: "100", links: [{name: a}, {name: b}]}}
`

// mtu is a value for the mtu attribute, which only devices with an interface have.
var mtu = resourceapi.DeviceAttribute{IntValue: ptr.To[int64](1500)}

// attachesInterface returns the same results as the schemas would for the plugins in these tests.
func attachesInterface(cniType string) bool { return cniType != "files" }

func TestClasses(t *testing.T) {
	const want = `
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata:
    labels:
      networking.dra.io/step: vf0
      networking.dra.io/topology: bonded
      networking.dra.io/topology-uid: uid-1
    name: bonded-vf0
    ownerReferences:
    - {apiVersion: networking.dra.io/v1alpha1, blockOwnerDeletion: true, controller: true, kind: NetworkTopology, name: bonded, uid: uid-1}
  spec:
    config:
    - opaque:
        driver: dra.networking
        parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: bonded}, step: vf0}
    selectors:
    - cel: {expression: 'device.driver == "dra.networking" && device.attributes["cni.dra.networking"].?host_device.orValue(false) && has(device.attributes["dra.networking"].mtu) && (device.attributes["dra.networking"].type == "vf")'}
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata:
    labels:
      networking.dra.io/step: vf1
      networking.dra.io/topology: bonded
      networking.dra.io/topology-uid: uid-1
    name: bonded-vf1
    ownerReferences:
    - {apiVersion: networking.dra.io/v1alpha1, blockOwnerDeletion: true, controller: true, kind: NetworkTopology, name: bonded, uid: uid-1}
  spec:
    config:
    - opaque:
        driver: dra.networking
        parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: bonded}, step: vf1}
    selectors:
    - cel: {expression: "device.driver == \"dra.networking\" && device.attributes[\"cni.dra.networking\"].?ovn_k8s_cni.orValue(false) && has(device.attributes[\"dra.networking\"].mtu) && (true // any\n)"}
`
	var wanted []resourceapi.DeviceClass
	if err := yaml.UnmarshalStrict([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, Of(parse(t, bonded), attachesInterface, false)); diff != "" {
		t.Errorf("wrong classes (-want +got):\n%s", diff)
	}
}

// TestParametersAreReadByTheDriver checks that a node can decode the parameters in a class.
func TestParametersAreReadByTheDriver(t *testing.T) {
	got, err := v1alpha1.DecodeParameters(parameters("bonded", "vf0"))
	want := v1alpha1.Parameters{
		APIVersion: "networking.dra.io/v1alpha1", Kind: "StepParameters",
		NetworkTopologyRef: v1alpha1.TopologyRef{Name: "bonded"}, Step: "vf0",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error = %v, or wrong parameters (-want +got):\n%s", err, diff)
	}
}

// TestSelectorsAsTheSchedulerEvaluatesThem evaluates the selectors of classes with the scheduler's own compiler, for
// devices from this driver and from other drivers, and for both forms in which nodes publish CNI plugins. A class for
// one form selects no devices published in the other form.
func TestSelectorsAsTheSchedulerEvaluatesThem(t *testing.T) {
	device := func(driver string, attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) dracel.Device {
		return dracel.Device{Driver: driver, Attributes: attributes}
	}
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	yes := resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
	list := func(plugins ...string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValues: plugins}
	}
	type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	tests := map[string]struct {
		device   dracel.Device
		booleans bool
		lists    bool
	}{
		"ours": {device("dra.networking", attributes{"type": text("vf"), "mtu": mtu, "cni.dra.networking/host_device": yes,
			"supportedCNIs": text(",host-device,")}),
			true, false},
		"ours, as a list": {device("dra.networking",
			attributes{"type": text("vf"), "mtu": mtu, "supportedCNIs": list("sriov", "host-device")}),
			false, true},
		"ours, not by this plugin": {device("dra.networking",
			attributes{"type": text("vf"), "mtu": mtu, "cni.dra.networking/sriov": yes, "supportedCNIs": text(",sriov,")}),
			false, false},
		"ours, not by this plugin, as a list": {device("dra.networking",
			attributes{"type": text("vf"), "mtu": mtu, "supportedCNIs": list("sriov", "host", "device")}),
			false, false},
		"ours, not selected by the step": {device("dra.networking",
			attributes{"type": text("pf"), "mtu": mtu, "cni.dra.networking/host_device": yes,
				"supportedCNIs": text(",host-device,")}),
			false, false},
		"ours, not selected by the step, as a list": {device("dra.networking",
			attributes{"type": text("pf"), "mtu": mtu, "supportedCNIs": list("host-device")}),
			false, false},
		"ours, no plugin at all": {device("dra.networking", attributes{"type": text("pf")}), false, false},
		"of another driver":      {device("gpu.example.com", attributes{"model": text("x")}), false, false},
		"of another driver, without attributes": {dracel.Device{Driver: "gpu.example.com",
			AllowMultipleAllocations: ptr.To(true)},
			false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if matches := evaluate(t, false, test.device); matches != test.booleans {
				t.Errorf("class selects the device: %t, want %t", matches, test.booleans)
			}
			if matches := evaluate(t, true, test.device); matches != test.lists {
				t.Errorf("class with list attributes selects the device: %t, want %t", matches, test.lists)
			}
		})
	}
}

// evaluate reports whether the first class selects a device, and compiles the selectors of the second class.
func evaluate(t *testing.T, listAttributes bool, device dracel.Device) bool {
	t.Helper()
	compiler := dracel.GetCompiler(dracel.Features{EnableListTypeAttributes: listAttributes})
	matches := true
	for i, class := range Of(parse(t, bonded), attachesInterface, listAttributes) {
		for _, selector := range class.Spec.Selectors {
			compiled := compiler.CompileCELExpression(selector.CEL.Expression, dracel.Options{})
			if compiled.Error != nil || compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
				t.Fatalf("the API server would reject %s with cost %d: %v", selector.CEL.Expression, compiled.MaxCost,
					compiled.Error)
			}
			if i > 0 {
				continue
			}
			match, _, err := compiled.DeviceMatches(t.Context(), device)
			if err != nil {
				t.Fatalf("%s would abort the scheduling of the pod: %v", selector.CEL.Expression, err)
			}
			matches = matches && match
		}
	}
	return matches
}

func TestPlugin(t *testing.T) {
	for listAttributes, want := range map[bool][]string{false: {"host_device", "ovn_k8s_cni"},
		true: {"host-device", "ovn.k8s-cni"}} {
		var got []string
		for _, class := range Of(parse(t, bonded), attachesInterface, listAttributes) {
			got = append(got, Plugin(&class))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with list attributes %t (-want +got):\n%s", listAttributes, diff)
		}
	}
	if got := Plugin(&resourceapi.DeviceClass{}); got != "" {
		t.Errorf("another component's class requires plugin %s, want none", got)
	}
}

// If a device does not have an attribute that a step's expression uses, the attribute's default value is used, as in
// policies, and scheduling does not fail.
func TestClassesGuardWhatDevicesMayLack(t *testing.T) {
	topology := parse(t, `
metadata: {name: free}
spec:
  steps:
  - {name: port, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].masterBridge == ""'}}
`)
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	class := Of(topology, attachesInterface, false)[0]
	expression := class.Spec.Selectors[0].CEL.Expression
	if plugin := Plugin(&class); plugin != "macvlan" {
		t.Errorf("plugin of the class = %q, want macvlan", plugin)
	}
	compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(expression, dracel.Options{})
	if compiled.Error != nil {
		t.Fatal(compiled.Error)
	}
	for master, want := range map[string]bool{"": true, "br0": false} {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"cni.dra.networking/macvlan": {BoolValue: ptr.To(true)}, "mtu": mtu}
		if master != "" {
			attributes["masterBridge"] = text(master)
		}
		match, _, err := compiled.DeviceMatches(t.Context(),
			dracel.Device{Driver: "dra.networking", Attributes: attributes})
		if err != nil || match != want {
			t.Errorf("%s with master %q: got %t, %v", expression, master, match, err)
		}
	}
}

// A class selects only devices that meet the requirements of its step. Otherwise, the scheduler could allocate a device
// that Prepare rejects on every attempt.
func TestClassesSelectWhatStepsNeed(t *testing.T) {
	topology := parse(t, `
metadata: {name: needs}
spec:
  steps:
  - {name: link, type: p, selector: {cel: "true"}}
  - {name: rdma, type: p, selector: {cel: "true"}, rdma: {}}
  - {name: vfio, type: p, selector: {cel: "true"}, driver: vfio-pci}
  - {name: files, type: files, selector: {cel: "true"}, rdma: {}}
`)
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	for name, test := range map[string]struct {
		device attributes
		want   string
	}{
		"a link":           {attributes{"mtu": mtu}, "link"},
		"a link with RDMA": {attributes{"mtu": mtu, "rdma": {BoolValue: ptr.To(true)}}, "link rdma files"},
		"a VLAN, which uses RDMA devices of its parent": {
			attributes{"mtu": mtu, "type": text("vlan")}, "link rdma files"},
		"a function":                 {attributes{"mtu": mtu, "pciAddress": text("0000:03:00.2")}, "link vfio"},
		"a function without a link":  {attributes{"pciAddress": text("0000:03:00.2")}, "vfio"},
		"a device without interface": {attributes{}, ""},
		"a device with only RDMA":    {attributes{"rdma": {BoolValue: ptr.To(true)}}, "files"},
		"a link of an earlier version": {attributes{"ifName": text("eth1"), "mac": text(""), "mtu": mtu,
			"pciAddress": text("")}, "link vfio"},
	} {
		all := attributes{"cni.dra.networking/p": {BoolValue: ptr.To(true)},
			"cni.dra.networking/files": {BoolValue: ptr.To(true)}, "rdma": {BoolValue: ptr.To(false)},
			"type": text("nic")}
		maps.Copy(all, test.device)
		var matching []string
		for _, class := range Of(topology, attachesInterface, false) {
			compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(
				class.Spec.Selectors[0].CEL.Expression, dracel.Options{})
			match, _, err := compiled.DeviceMatches(t.Context(), dracel.Device{Driver: "dra.networking", Attributes: all})
			if err != nil {
				t.Fatal(err)
			}
			if match {
				matching = append(matching, strings.TrimPrefix(class.Name, "needs-"))
			}
		}
		if got := strings.Join(matching, " "); got != test.want {
			t.Errorf("%s: classes of steps %q match, want %q", name, got, test.want)
		}
	}
	topology.Spec.Attachment = v1alpha1.AttachmentExternal
	if got := Of(topology, attachesInterface, false)[0].Spec.Selectors[0].CEL.Expression; strings.Contains(got, ".mtu") {
		t.Errorf("another component attaches the device, but the class selects by MTU: %s", got)
	}
}

// The longest expression that the controller accepts still fits into a class, including guards and conditions.
func TestLongSelectorsFitIntoClasses(t *testing.T) {
	longest := func(readings int) string {
		return `cel.bind(a, device.attributes["dra.networking"], a.mtu == 1` + strings.Repeat("||a.mtu==2", readings) + ")"
	}
	refused := sort.Search(400, func(n int) bool { return policy.CheckClassSelector(longest(n)) != nil })
	if err := policy.CheckClassSelector(longest(refused)); refused == 400 || err == nil ||
		!strings.Contains(err.Error(), "read each attribute once") {
		t.Fatalf("wrong result for an expression that reads attributes %d times: %v", refused, err)
	}
	step := &v1alpha1.Step{Type: strings.Repeat("p", resourceapi.DeviceMaxIDLength),
		Selector: &v1alpha1.StepSelector{CEL: longest(refused-1) + " // so"}}
	for _, listAttributes := range []bool{false, true} {
		got := len(expression(step, true, listAttributes))
		if limit := resourceapi.CELSelectorExpressionMaxLength; got > limit || got < limit-300 {
			t.Errorf("with list attributes %t, the class has %d bytes, but the limit is %d", listAttributes, got, limit)
		}
	}
}
