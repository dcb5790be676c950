package policy

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// An expression has the same result in a policy as in a device class.
func TestExpressionsAsInTheScheduler(t *testing.T) {
	devices := []discovery.Device{
		{Name: "enp3s0f0v1", Type: discovery.TypeVF, PFName: "enp3s0f0", VFIndex: 1, MTU: 9000, RDMA: true,
			RDMADevices: []string{"mlx5_1"}, RDMALinkLayer: discovery.RDMAEthernet, RDMANetns: discovery.RDMAShared,
			RDMAPort: discovery.RDMAPort{GUID: "0x0002c90300a1b2c3", State: "active", Rate: 400,
				PKeys: []string{"0x7fff", "0x8001"}},
			PCIeRoot: "pci0000:00", VLANID: discovery.None},
		{Name: "br0", Type: discovery.TypeBridge, MTU: 1500, VFIndex: discovery.None, NUMANode: discovery.None,
			VLANID: discovery.None},
	}
	const self, standard = `device.attributes["dra.networking"]`, `device.attributes["resource.kubernetes.io"]`
	for _, expression := range []string{
		`SELF.type == "vf"`, `SELF["type"] == "vf"`, `SELF.rdma`,
		`SELF.rdmaDevice == "mlx5_1" && SELF.rdmaLinkLayer == "ethernet" && SELF.rdmaNetns == "shared"`,
		`SELF.rdmaPKeys.contains(",0x8001,") && SELF.rdmaRate >= 200 && SELF.rdmaPortState == "active"`,
		`SELF.rdmaPKeys.matches(",0x[08]001,") && SELF.rdmaPortGUID in ["0x0002c90300a1b2c3"]`,
		`SELF.rdmaPKeys.contains(",0x8002,") || SELF.rdmaPKeys.contains(",0x0001,")`,
		`SELF.mtu > 1500 && SELF.vfIndex >= 0`,
		`SELF.ifName.startsWith("en")`,
		`SELF.type in ["vf", "pf"]`, `STANDARD.pcieRoot != ""`, `has(SELF.type) && !has(SELF.other)`, `SELF.other == 1`,
		`SELF.?other.orValue(1) == 1`,
		`SELF.type == 1`, `device.driver == "dra.networking"`, `device.allowMultipleAllocations == false`,
		`SELF.exists(name, name == "type")`, `SELF.all(name, name == "type")`,
		`device.attributes.exists(domain, domain == "dra.networking")`,
		`device.attributes.exists(domain, domain == "example.com")`,
		`size(device.attributes) == 3`, `size(SELF) > 20`, `size(device.capacity) == 0`,
		`"example.com" in device.attributes`, `"dra.networking" in device.attributes`,
		`has(device.attributes["example.com"].x)`, `device.attributes["example.com"].x == 1`,
		`device.attributes["example.com"].?x.orValue(2) == 2`,
		`size(device.attributes["example.com"]) == 0`, `"x" in device.attributes["example.com"]`, `"type" in SELF`,
		`has(device.capacity["example.com"].x)`, `device.capacity["dra.networking"].x.isGreaterThan(quantity("1"))`,
		`cel.bind(a, SELF, a.type == "vf" && a.?masterBridge.orValue("") == "")`,
		`device.attributes[device.driver].type == "vf"`,
		`SELF[SELF.type] == "x"`, `SELF.mtu / SELF.linkSpeed > 1`, `semver("1.2.3").isGreaterThan(semver("1.0.0"))`,
	} {
		s, err := compile(strings.NewReplacer("SELF", self, "STANDARD", standard).Replace(expression),
			environment.StoredExpressions)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		for _, d := range devices {
			want, _, wantErr := s.result.DeviceMatches(t.Context(),
				dracel.Device{Driver: v1alpha1.AttributeDomain, Attributes: Attributes(d)})
			got, _, err := s.matches(variablesOf(&d))
			switch {
			case got != want || (err == nil) != (wantErr == nil):
				t.Errorf("%s on %s: %t (%v), but in a class %t (%v)", expression, d.Name, got, err, want, wantErr)
			case err != nil && !strings.HasSuffix(err.Error(), dracel.EnhanceRuntimeError(wantErr).Error()):
				t.Errorf("%s on %s: error %v, but in a class %v", expression, d.Name, err, wantErr)
			}
		}
	}
}

// As in the scheduler, an expression that does not yield a boolean causes an error. Without the error, an exclude
// policy with such an expression would not hide any devices.
func TestSelectorsThatAreNotBoolean(t *testing.T) {
	d := discovery.Device{Name: "eth0", Type: discovery.TypeNIC, MTU: 9000}
	for expression, want := range map[string]string{
		`device.attributes["dra.networking"].type`: `it returns nic (string) instead of true or false`,
		`device.attributes["dra.networking"].mtu`:  `it returns 9000 (int) instead of true or false`,
	} {
		s, err := compile(expression, environment.StoredExpressions)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if _, _, wantErr := s.result.DeviceMatches(t.Context(),
			dracel.Device{Driver: v1alpha1.AttributeDomain, Attributes: Attributes(d)}); wantErr == nil {
			t.Errorf("%s caused no error in the scheduler", expression)
		}
		if matches, _, err := s.matches(variablesOf(&d)); matches || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %t, %v; want error %s", expression, matches, err, want)
		}
	}
}

// On a device's published attributes, an expression in a class has the same result as in a policy: absent attributes
// neither change the result nor cause an error.
func TestClassesSayWhatPoliciesSay(t *testing.T) {
	devices := []discovery.Device{
		{Name: "enp3s0f0v1", Interface: "eth6", Type: discovery.TypeVF, PFName: "enp3s0f0", VFIndex: 1, MTU: 9000,
			PCIeRoot: "pci0000:00", Master: "br0", VLANID: discovery.None},
		{Name: "br0", Interface: "br0", Type: discovery.TypeBridge, MTU: 1500, BridgeName: "br0", BridgeType: "linux",
			VFIndex: discovery.None, NUMANode: discovery.None, VLANID: discovery.None},
		{Name: "dummy0", Type: "dummy", VFIndex: discovery.None, NUMANode: discovery.None, VLANID: discovery.None},
	}
	expressions := []string{`SELF.pfName.contains("f0") || SELF.bridgeName.matches("b.*")`,
		`SELF.pfName in ["", "x"] ? SELF.mtu > 0 : SELF.vfIndex == 1`,
		`SELF.interface.split("").exists(c, c == "e") && SELF.masterBridge != ""`}
	for _, name := range append(PublishedWhereFact(), AlwaysPublished()...) {
		domain, id, _ := strings.Cut(string(name), "/")
		read := access{domain: domain, id: id}
		absent, _ := absentLiteral(read)
		expressions = append(expressions, read.field(".")+" == "+absent, absent+" != "+read.field("."))
	}
	for _, expression := range expressions {
		expression = strings.ReplaceAll(expression, "SELF", `device.attributes["dra.networking"]`)
		if err := CheckClassSelector(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		inPolicy, err := compile(expression, environment.StoredExpressions)
		if err != nil {
			t.Fatal(err)
		}
		complete, err := ClassExpression(expression)
		if err != nil {
			t.Fatal(err)
		}
		inClass, err := compile(complete, environment.StoredExpressions)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range devices {
			want, _, wantErr := inPolicy.matches(variablesOf(&d))
			got, _, err := inClass.result.DeviceMatches(t.Context(),
				dracel.Device{Driver: v1alpha1.AttributeDomain, Attributes: Published(d)})
			if err != nil || wantErr != nil || got != want {
				t.Errorf("%s on %s: %t (%v), but in a class %t (%v)", expression, d.Name, want, wantErr, got, err)
			}
		}
	}
}
