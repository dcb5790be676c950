package policy_test

import (
	"fmt"
	"maps"
	stdslices "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// facts returns facts about a node with a NIC and a bridge.
func facts() discovery.Facts {
	return discovery.Facts{Devices: []discovery.Device{
		{Name: "br0", Type: "bridge", NUMANode: -1, VFIndex: -1, VLANID: -1},
		{Name: "eth1", Type: "nic", PCIAddress: "0000:03:00.0", PCIeRoot: "pci0000:00", VFIndex: -1, VLANID: -1},
	}}
}

// policies parses policy specs, keyed by policy name.
func policies(t testing.TB, specs map[string]string) []v1alpha1.DeviceExposurePolicy {
	t.Helper()
	var list []v1alpha1.DeviceExposurePolicy
	for name, spec := range specs {
		p := v1alpha1.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// expose returns a policy for one plugin.
func expose(expression, suffix string, priority int) string {
	return fmt.Sprintf("priority: %d\nselector: {cel: %q}\nexposure: {deviceNameSuffix: %q, supportedCNIPlugins: "+
		"[{name: host-device, exclusive: true}]}",
		priority, expand(expression), suffix)
}

// exclude returns a policy that hides devices.
func exclude(expression string) string {
	return fmt.Sprintf("selector: {cel: %q}\naction: exclude", expand(expression))
}

// brief returns a line without the text that the expression compiler adds.
func brief(line fmt.Stringer) string {
	s, _, _ := strings.Cut(line.String(), ": compilation failed")
	s, _, _ = strings.Cut(s, ". consider")
	return s
}

// text prints a decision.
func text(d policy.Decision) string {
	var out strings.Builder
	for _, device := range d.Devices {
		fmt.Fprintf(&out, "%s\n", device.Device.Name)
		for _, p := range device.Personas {
			mode := "shared"
			if p.Exclusive {
				mode = "exclusive"
			}
			fmt.Fprintf(&out, "  entry %q of %s: %s %s", p.Suffix, p.Policy, mode, strings.Join(p.Plugins, ","))
			for _, c := range p.Capacity {
				fmt.Fprintf(&out, " %s=%s", c.Name, &c.Value)
				if c.RequestPolicy != nil {
					fmt.Fprintf(&out, "/%s", c.RequestPolicy.Default)
				}
			}
			out.WriteString("\n")
		}
		for _, r := range device.Reasons {
			fmt.Fprintf(&out, "  %s\n", brief(r))
		}
	}
	for _, p := range d.Problems {
		fmt.Fprintf(&out, "problem: %s\n", brief(p))
	}
	return out.String()
}

func TestResolve(t *testing.T) {
	for name, test := range map[string]struct {
		policies map[string]string
		want     string
	}{
		"nothing is offered without a policy": {nil, `
br0
eth1`},
		"an exclude policy wins over any priority": {map[string]string{
			"all": expose("true", "", 1000), "infra": exclude(`@ifName == "eth1"`)}, `
br0
  entry "" of all: exclusive host-device
  policy all: exposes: the expression is true
  policy infra: no match: the expression is false
eth1
  policy all: lost: policy infra excludes the device
  policy infra: excludes: the expression is true`},
		"the highest priority of each suffix wins, then the first name": {map[string]string{
			"a": expose(`@type == "nic"`, "-x", 100), "b": expose(`@type == "nic"`, "-x", 200),
			"c": expose(`@type == "nic"`, "-x", 200), "d": expose(`@type == "nic"`, "", 1)}, `
br0
  policy a: no match: the expression is false
  policy b: no match: the expression is false
  policy c: no match: the expression is false
  policy d: no match: the expression is false
eth1
  entry "" of d: exclusive host-device
  entry "-x" of b: exclusive host-device
  policy a: lost: policy b wins: same deviceNameSuffix "-x", and priority 200 against 100; give this one a higher priority or another suffix
  policy b: exposes: the expression is true
  policy c: lost: policy b wins: same deviceNameSuffix "-x" and priority 200, and its name sorts first; give this one a higher priority or another suffix
  policy d: exposes: the expression is true`},
		"a failing expression exposes nothing and hides": {map[string]string{
			"all": expose(`@type == "bridge" || @type == "nic"`, "", 1), "x": expose("@nothing == 1", "-x", 1),
			"y": exclude(`@type == "nic" && @nothing == 1`)}, `
br0
  entry "" of all: exclusive host-device
  policy all: exposes: the expression is true
  policy x: failed: cannot evaluate the expression: no device has an attribute dra.networking/nothing; remove it from the expression, or guard it with has(device.attributes["dra.networking"].nothing) &&
  policy y: no match: the expression is false
eth1
  policy all: lost: policy y excludes the device
  policy x: failed: cannot evaluate the expression: no device has an attribute dra.networking/nothing; remove it from the expression, or guard it with has(device.attributes["dra.networking"].nothing) &&
  policy y: failed: cannot evaluate the expression: no device has an attribute dra.networking/nothing; remove it from the expression, or guard it with has(device.attributes["dra.networking"].nothing) &&
problem: policy x: device br0: cannot evaluate the expression: no device has an attribute dra.networking/nothing; remove it from the expression, or guard it with has(device.attributes["dra.networking"].nothing) &&
problem: policy y: device eth1: cannot evaluate the expression: no device has an attribute dra.networking/nothing; remove it from the expression, or guard it with has(device.attributes["dra.networking"].nothing) &&`},
		"an exclude policy that does not compile hides everything": {map[string]string{
			"all": expose("true", "", 1), "x": exclude("@type ==")}, `
br0
  policy all: lost: policy x excludes the device
  policy x: failed: cannot compile the expression
eth1
  policy all: lost: policy x excludes the device
  policy x: failed: cannot compile the expression
problem: policy x: hides all devices of its nodes until its expression is corrected: cannot compile the expression`},
		"an invalid policy exposes nothing, an invalid exclude policy still hides": {map[string]string{
			"all": expose(`@type == "bridge"`, "", 1), "x": expose("true", "X", 1), "y": exclude("@type == 'bridge'") +
				"\npriority: -1"}, `
br0
  policy all: lost: policy y excludes the device
  policy x: invalid: spec.exposure.deviceNameSuffix: Invalid value: "X": must be empty or "-" followed by lower-case letters, digits and "-", at most 32 characters, for example "-macvlan"
  policy y: excludes: the expression is true
eth1
  policy all: no match: the expression is false
  policy x: invalid: spec.exposure.deviceNameSuffix: Invalid value: "X": must be empty or "-" followed by lower-case letters, digits and "-", at most 32 characters, for example "-macvlan"
  policy y: no match: the expression is false
problem: policy x: is not valid: spec.exposure.deviceNameSuffix: Invalid value: "X": must be empty or "-" followed by lower-case letters, digits and "-", at most 32 characters, for example "-macvlan"
problem: policy y: is not valid: spec.priority: Invalid value: -1: must be between 0 and 1000`},
		"policies of other nodes are not judged": {map[string]string{
			"all":   expose(`@type == "bridge"`, "", 1) + "\nnodeSelector: {matchLabels: {role: worker}}",
			"other": exclude("broken (") + "\nnodeSelector: {matchLabels: {role: gpu}}"}, `
br0
  entry "" of all: exclusive host-device
  policy all: exposes: the expression is true
  policy other: other nodes: nodeSelector does not match the node's labels
eth1
  policy all: no match: the expression is false
  policy other: other nodes: nodeSelector does not match the node's labels`},
		"a mixed policy gives two entries, and an amount is the default": {map[string]string{"mixed": `
selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
exposure:
  deviceNameSuffix: "-x"
  allowMultipleAllocations: true
  capacity: {ports: {value: "9"}, other: {value: "5"}}
  supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {ports: 3}}, {name: host-device, exclusive: true}, {name: ipvlan}]`}, `
br0
  policy mixed: no match: the expression is false
eth1
  entry "-x" of mixed: shared macvlan,ipvlan other=5 ports=9/3
  entry "-x-exclusive" of mixed: exclusive host-device other=5 ports=9
  policy mixed: exposes: the expression is true`},
		"of a mixed policy's request policies only those who share have any": {map[string]string{"mixed": `
selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
exposure:
  allowMultipleAllocations: true
  capacity: {bandwidth: {value: "900", requestPolicy: {default: "100"}}}
  supportedCNIPlugins: [{name: macvlan}, {name: host-device, exclusive: true}]`}, `
br0
  policy mixed: no match: the expression is false
eth1
  entry "" of mixed: shared macvlan bandwidth=900/100
  entry "-exclusive" of mixed: exclusive host-device bandwidth=900
  policy mixed: exposes: the expression is true`},
		"a range of bandwidths": {map[string]string{"x": `
selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
exposure:
  capacity: {bandwidth: {value: "900", requestPolicy: {default: "100", validRange: {min: "100"}}}}
  supportedCNIPlugins: [{name: host-device, exclusive: true}]`}, `
br0
  policy x: no match: the expression is false
eth1
  entry "" of x: exclusive host-device bandwidth=900/100
  policy x: exposes: the expression is true
problem: policy x: capacity[bandwidth].requestPolicy.validRange cannot be supported on this Kubernetes version, where every virtual function has the default, 100: a claim that requests more, up to 900, is never allocated, and a claim that requests less, down to 100, takes 100; list the amounts in validValues to offer each of them, or write the range in linkBandwidth, so that claims choose any amount in it`},
		"plugins that would share an exclusive device": {map[string]string{"x": `
selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
exposure: {supportedCNIPlugins: [{name: macvlan}]}`}, `
br0
  policy x: no match: the expression is false
eth1
  entry "" of x: exclusive macvlan
  policy x: exposes: the expression is true
problem: policy x: plugin macvlan is not exclusive, and one claim takes the device since allowMultipleAllocations is false: set exclusive to true for the plugin, or allowMultipleAllocations to true`},
	} {
		t.Run(name, func(t *testing.T) {
			node := policy.Node{Name: "worker-1", Labels: map[string]string{"role": "worker"}}
			got := text(policy.Resolve(facts(), policies(t, test.policies), node))
			if diff := cmp.Diff(strings.TrimSpace(test.want), strings.TrimSpace(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// keys returns the sorted attribute names.
func keys(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) []string {
	var names []string
	for _, n := range stdslices.Sorted(maps.Keys(attributes)) {
		names = append(names, string(n))
	}
	return names
}

// Policy validation rejects exactly the attribute names in the vocabulary.
func TestDiscoveredNames(t *testing.T) {
	want := []string{"exposurePolicy", "supportedCNIs"}
	for _, n := range keys(policy.Attributes(discovery.Device{})) {
		if id, ok := strings.CutPrefix(n, v1alpha1.AttributeDomain+"/"); ok {
			want = append(want, id)
		}
	}
	stdslices.Sort(want)
	if diff := cmp.Diff(want, v1alpha1.DiscoveredNames()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Policies can only request attributes that are published on request, and can request all of them.
func TestRequestableNames(t *testing.T) {
	var want []string
	for _, n := range policy.PublishedOnRequest() {
		want = append(want, strings.TrimPrefix(string(n), v1alpha1.AttributeDomain+"/"))
	}
	stdslices.Sort(want)
	if diff := cmp.Diff(want, v1alpha1.RequestableNames()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A missing property is absent rather than empty: two devices must not match just because neither of them has it.
func TestPublished(t *testing.T) {
	sorted := func(names ...[]resourceapi.QualifiedName) []string {
		var list []string
		for _, n := range stdslices.Concat(names...) {
			list = append(list, string(n))
		}
		stdslices.Sort(list)
		return list
	}
	always, whereFact := policy.AlwaysPublished(), policy.PublishedWhereFact()
	nothing := discovery.Device{NUMANode: -1, VFIndex: -1, VLANID: -1}
	if diff := cmp.Diff(sorted(always), keys(policy.Published(nothing))); diff != "" {
		t.Errorf("without facts (-want +got):\n%s", diff)
	}
	full := discovery.Device{Name: "br0", Interface: "br0", AltNames: []string{"a"}, Kind: "bridge", Type: "bridge",
		MAC: "02:00:00:00:00:01", MTU: 1500, LinkSpeed: 1000, OperState: "up", Carrier: true, AdminUp: true,
		PCIAddress: "0000:03:00.0", PCIeRoot: "pci0000:00", Vendor: "15b3", Product: "101e",
		Driver: "mlx5_core", RDMA: true,
		RDMADevices: []string{"mlx5_0"}, RDMALinkLayer: "ethernet", RDMANetns: "shared", PortName: "p0",
		RDMAPort: discovery.RDMAPort{GUID: "0x0002c90300a1b2c3", State: "active", Rate: 400,
			PKeys: []string{"0x8001"}}, AuxiliaryDevice: "mlx5_core.sf.2", RepresentorName: "rep0",
		SwitchID: "c2a9", Representor: true, SRIOVCapable: true, TotalVFs: 8, EswitchMode: "legacy", PFName: "eth0",
		PFAddress: "0000:03:00.0", Settings: &discovery.VFSettings{MAC: "02:00:00:00:00:01", LinkState: "auto"},
		BridgeName: "br0", BridgeType: "linux", Master: "bond0", MasterKind: "bond", Parent: "eth1", DefaultRoute: true}
	if diff := cmp.Diff(sorted(always, whereFact), keys(policy.Published(full))); diff != "" {
		t.Errorf("with all facts (-want +got):\n%s", diff)
	}
	requested := v1alpha1.RequestableNames()
	if diff := cmp.Diff(sorted(always, whereFact, policy.PublishedOnRequest()),
		keys(policy.Published(full, append(requested, "operState", "nothing")...))); diff != "" {
		t.Errorf("with all facts on request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(always, []resourceapi.QualifiedName{"dra.networking/representor"}),
		keys(policy.Published(nothing, requested...))); diff != "" {
		t.Errorf("without facts on request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(always, whereFact), keys(policy.PublishedWithAbsent(nothing))); diff != "" {
		t.Errorf("for templates (-want +got):\n%s", diff)
	}
	for name, device := range map[resourceapi.QualifiedName]discovery.Device{
		// A bridge uses the address of one of its ports.
		"dra.networking/mac":      {Type: "bridge", MAC: "02:00:00:00:00:01", InheritedMAC: true},
		"dra.networking/driver":   {Driver: strings.Repeat("x", 65)}, // too long for an attribute
		"dra.networking/altNames": {AltNames: []string{strings.Repeat("x", 63)}},
	} {
		if got, ok := policy.Published(device, "altNames")[name]; ok {
			t.Errorf("%s was published as %q", name, *got.StringValue)
		}
	}
}

// If a claim could get exclusive use of a device that the node needs for its own traffic, there is a remark, since the
// pod would fail to start. Shared devices stay on the node and get no remark.
func TestNodeTrafficIsRemarked(t *testing.T) {
	node := facts()
	node.Devices[1].DefaultRoute = true
	const selector = `selector: {cel: 'device.attributes["dra.networking"].type in ["nic", "bridge"]'}` + "\n"
	const shared = selector + "exposure: {allowMultipleAllocations: true, capacity: {links: {value: '2', " +
		"requestPolicy: {default: '1', validValues: ['1']}}}, supportedCNIPlugins: [{name: macvlan}"
	const alone = selector + `exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]`
	for name, test := range map[string]struct {
		specs map[string]string
		want  string
	}{
		"alone":              {map[string]string{"p": alone + "}"}, "p eth1"},
		"also allowInUse":    {map[string]string{"p": alone + ", allowInUse: true}"}, "p eth1"},
		"shared":             {map[string]string{"p": shared + "]}"}, ""},
		"shared or alone":    {map[string]string{"p": shared + ", {name: host-device, exclusive: true}]}"}, "p eth1"},
		"lost":               {map[string]string{"a": alone + "}", "b": shared + "]}\npriority: 1"}, ""},
		"hidden by another":  {map[string]string{"p": alone + "}", "x": selector + "action: exclude"}, ""},
		"of a further entry": {map[string]string{"p": shared + "]}", "q": alone + ", deviceNameSuffix: -q}"}, "q eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, problem := range policy.Resolve(node, policies(t, test.specs), policy.Node{}).Problems {
				if !problem.Remark {
					t.Errorf("%s", problem)
				}
				if problem.Remark && strings.Contains(problem.Message, "pods of claims that get it do not start") {
					got = append(got, problem.Policy+" "+problem.Device)
				}
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
