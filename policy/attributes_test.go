package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	stdslices "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The table in the doc comment of Attributes documents the vocabulary for users and must contain every name exactly
// once.
func TestTheVocabularyIsDescribed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "attributes.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	described := []string{"exposurePolicy", "supportedCNIs"} // these are not facts about a device
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == "Attributes" {
			for line := range strings.Lines(f.Doc.Text()) {
				// Names that contain a slash belong to other domains.
				if row, ok := strings.CutPrefix(line, "\t"); ok && !strings.Contains(strings.Fields(row)[0], "/") {
					described = append(described, strings.Fields(row)[0])
				}
			}
		}
	}
	stdslices.Sort(described)
	if diff := cmp.Diff(v1alpha1.DiscoveredNames(), described); diff != "" {
		t.Errorf("(-vocabulary +described):\n%s", diff)
	}
}

// Policies can read facts about hardware and functions, and every device has a value for them, but they are not
// published.
func TestAttributesOfHardware(t *testing.T) {
	function := discovery.Device{Type: "vf", AltNames: []string{"data0", strings.Repeat("long", 30)},
		RDMADevices:   []string{"mlx5_0", "mlx5_1"},
		RDMALinkLayer: "ethernet", RDMANetns: "exclusive",
		RDMAPort: discovery.RDMAPort{GUID: "0x0002c90300a1b2c3", State: "active", Rate: 400,
			PKeys: []string{"0x7fff", "0x8001"}}, PortName: "p0", SwitchID: "c2a9", Representor: true,
		EswitchMode: "switchdev",
		PFAddress:   "0000:03:00.0",
		Settings: &discovery.VFSettings{MAC: "02:00:00:00:00:01", VLAN: 100, QoS: 3, Trust: true, SpoofCheck: true,
			LinkState: "auto", MinTxRate: 1, MaxTxRate: 2}}
	absent := values(policy.Attributes(discovery.Device{}))
	present := values(policy.Attributes(function))
	for name, want := range map[string][2]any{
		"altNames":      {"", ",data0," + strings.Repeat("long", 30) + ","},
		"rdmaDevices":   {"", ",mlx5_0,mlx5_1,"},
		"rdmaLinkLayer": {"", "ethernet"},
		"rdmaNetns":     {"", "exclusive"},
		"rdmaPortGUID":  {"", "0x0002c90300a1b2c3"},
		"rdmaPortState": {"", "active"},
		"rdmaRate":      {int64(0), int64(400)},
		"rdmaPKeys":     {"", ",0x7fff,0x8001,"},
		"portName":      {"", "p0"},
		"switchID":      {"", "c2a9"},
		"representor":   {false, true},
		"eswitchMode":   {"", "switchdev"},
		"pfAddress":     {"", "0000:03:00.0"},
		"vfMAC":         {"", "02:00:00:00:00:01"},
		"vfVLAN":        {int64(0), int64(100)},
		"vfQoS":         {int64(0), int64(3)},
		"vfTrust":       {false, true},
		"vfSpoofCheck":  {false, true},
		"vfLinkState":   {"", "auto"},
		"vfMinTxRate":   {int64(0), int64(1)},
		"vfMaxTxRate":   {int64(0), int64(2)},
	} {
		if diff := cmp.Diff(want, [2]any{absent["dra.networking/"+name], present["dra.networking/"+name]}); diff != "" {
			t.Errorf("%s, absent and present (-want +got):\n%s", name, diff)
		}
		if _, ok := policy.Published(function)[resourceapi.QualifiedName("dra.networking/"+name)]; ok {
			t.Errorf("%s was published, want no such attribute", name)
		}
	}
}

// The name of a device's first RDMA device is published. A device without RDMA does not have the attribute; otherwise,
// it would match other devices without RDMA.
func TestRDMADevice(t *testing.T) {
	for _, test := range []struct {
		devices []string
		want    any
	}{{nil, nil}, {[]string{"mlx5_0"}, "mlx5_0"}, {[]string{"mlx5_0", "rxe0"}, "mlx5_0"}} {
		device := discovery.Device{RDMA: true, RDMADevices: test.devices}
		if got := values(policy.Published(device))["dra.networking/rdmaDevice"]; got != test.want {
			t.Errorf("%v: first RDMA device published as %v, want %v", test.devices, got, test.want)
		}
	}
	if got := values(policy.Attributes(discovery.Device{}))["dra.networking/rdmaDevice"]; got != "" {
		t.Errorf("without RDMA devices, policies see rdmaDevice = %v, want an empty value", got)
	}
}

// values returns the bare attribute values, without their type wrappers.
func values(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) map[string]any {
	plain := map[string]any{}
	for name, value := range attributes {
		switch {
		case value.StringValue != nil:
			plain[string(name)] = *value.StringValue
		case value.IntValue != nil:
			plain[string(name)] = *value.IntValue
		case value.BoolValue != nil:
			plain[string(name)] = *value.BoolValue
		}
	}
	return plain
}

// Policies can select devices by hardware facts just like by any other facts.
func TestPoliciesOfHardware(t *testing.T) {
	facts := discovery.Facts{Devices: []discovery.Device{
		{Name: "eth0", Type: "pf", EswitchMode: "switchdev", AltNames: []string{"data0"}},
		{Name: "eth0v0", Type: "vf", Settings: &discovery.VFSettings{VLAN: 100, Trust: true}},
		{Name: "eth0v1", Type: "vf", Settings: &discovery.VFSettings{Trust: true}},
		{Name: "eth0v2", Type: "vf"},
	}}
	for expression, want := range map[string][]discovery.IfName{
		`@type == "vf" && @vfTrust && @vfVLAN == 0`:              {"eth0v1"},
		`@eswitchMode == "switchdev"`:                            {"eth0"},
		`@altNames.contains(",data0,")`:                          {"eth0"},
		`@vfVLAN == 0 && !@vfTrust && @vfMAC == "" && !@carrier`: {"eth0", "eth0v2"},
	} {
		if err := policy.CheckSelector(expand(expression)); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		rules := policies(t, map[string]string{"rule": expose(expression, "", 100)})
		var got []discovery.IfName
		for _, d := range policy.Resolve(facts, rules, policy.Node{}).Devices {
			if len(d.Personas) > 0 {
				got = append(got, d.Device.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// The kernel accepts names with arbitrary bytes, even if a pod sets them on its interface. Names that would be too long
// in JSON, or that would change when encoded, are not published: the API server would reject the whole slice.
func TestNamesThatAreNotUTF8(t *testing.T) {
	d := discovery.Device{Name: "ens1f0v0", Interface: "eth\xff", AltNames: []string{strings.Repeat("\xff", 60)}}
	published := policy.Published(d, "altNames")
	for _, name := range []resourceapi.QualifiedName{"dra.networking/interface", "dra.networking/altNames"} {
		if value, found := published[name]; found {
			t.Errorf("%s was published: %q", name, *value.StringValue)
		}
	}
	d.Name = "eth\xff"
	if name := *policy.Published(d)["dra.networking/ifName"].StringValue; name != "eth\ufffd" {
		t.Errorf("ifName = %q, want the invalid byte replaced", name)
	}
	d.Interface, d.AltNames = "ethö", []string{strings.Repeat("ö", 31)}
	published = policy.Published(d, "altNames")
	if got := []string{*published["dra.networking/interface"].StringValue,
		*published["dra.networking/altNames"].StringValue}; got[0] != "ethö" || len(got[1]) != policy.MaxString {
		t.Errorf("published interface and altNames: %q, want ethö and a shortened list", got)
	}
}
