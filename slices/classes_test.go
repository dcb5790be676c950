package slices_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// addUnrelated inserts a device from another driver, without attributes, before the devices on the node.
func (s *scheduler) addUnrelated() {
	s.slices = append([]*resourceapi.ResourceSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "00000-gpus"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "a-gpu.example.com", NodeName: ptr.To("worker-1"),
			Pool:    resourceapi.ResourcePool{Name: "a-gpus", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu0"}},
		},
	}}, s.slices...)
}

// If the controller accepts an expression for a class, the expression never causes an error that stops the scheduling
// of a pod, regardless of which attributes devices do not have. Each expression is evaluated on all kinds of machines,
// together with devices from another driver.
func TestClassesSurviveAbsentAttributes(t *testing.T) {
	for _, expression := range []string{
		`@type == "vf" && @vfIndex > 0 && @masterBridge == ""`,
		`@pfName == "enp3s0f0"`,
		`@masterBridge == "" && @linkSpeed >= 25000 && @mac != "" && @mtu > 0 && @numVFs == 0`,
		`cel.bind(a, device.attributes["dra.networking"], a.vendor == "15b3" && a["driver"] != "")`,
		`has(@numaNode) && @numaNode > 0`,
		`@?numaNode.orValue(-1) == 1`,
		`!has(@bridgeType) || @bridgeType == "ovs"`,
		`device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") == "pci0000:99"`,
		`has(@physicalNetworkName) && @physicalNetworkName == "localnet1"`,
		`has(device.attributes["example.com"].rack) && device.attributes["example.com"].rack > 3`,
		`device.attributes["cni.dra.networking"].?none.orValue(false)`,
		`has(device.capacity["dra.networking"].bandwidth) && ` +
			`device.capacity["dra.networking"].bandwidth.isGreaterThan(quantity("1T"))`,
	} {
		expression = strings.ReplaceAll(expression, "@", `device.attributes["dra.networking"].`)
		if err := policy.CheckClassSelector(expression); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(rounds(40)) {
			d := dice{rand.New(rand.NewPCG(seed, 7))}
			m := d.machine()
			s := newScheduler(t,
				build(t, append(m.devices(), bridge("br-data")), append(m.policies(), bridgePolicy)...))
			s.addUnrelated()
			var err error
			if s.selector, err = policy.ClassExpression(expression); err != nil {
				t.Fatal(err)
			}
			for _, plugin := range []string{"sriov", "bridge", "macvlan"} {
				if _, err := s.allocate(s.claim(plugin)); err != nil {
					t.Fatalf("%s for %s: %v; the machine is\n%s", expression, plugin, err, m)
				}
			}
		}
	}
}

// The controller rejects expressions that would stop the scheduling.
func TestClassesThatTheControllerRefuses(t *testing.T) {
	expression := `device.attributes["dra.networking"].rack == "7"`
	if err := policy.CheckClassSelector(expression); err == nil {
		t.Error("the invalid expression was accepted")
	}
	s := newScheduler(t, build(t, nics(), passthroughPolicy))
	s.selector = expression
	if _, err := s.allocate(s.claim("host-device")); err == nil ||
		!strings.Contains(err.Error(), "no such key: rack") {
		t.Errorf("got error %v", err)
	}
}

// An expression that is accepted in a policy does not fail for any device, not even for a device without any known
// properties.
func TestPoliciesSurviveAbsentAttributes(t *testing.T) {
	devices := append(pf("enp3s0f0", 1), nic("eth1"), bridge("br-data"), discovery.Device{Name: "x"})
	for name := range policy.Attributes(discovery.Device{}) {
		domain, id, _ := strings.Cut(string(name), "/")
		expression := `device.attributes["` + domain + `"].` + id
		expression += " == " + expression
		if err := policy.CheckSelector(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		decision := policy.Resolve(discovery.Facts{Devices: devices},
			policies(t, "selector: {cel: '"+expression+"'}\nexposure: {supportedCNIPlugins: [{name: host-device, "+
				"exclusive: true}]}"),
			policy.Node{Name: "worker-1"})
		for _, d := range decision.Devices {
			if len(d.Personas) != 1 || d.Reasons[0].Outcome != policy.Exposes {
				t.Errorf("%s on %s: %v", expression, d.Device.Name, d.Reasons)
			}
		}
	}
	for expression, outcome := range map[string]policy.Outcome{
		`has(device.attributes["example.com"].rack) && device.attributes["example.com"].rack == 1`: policy.NoMatch,
		// This expression is rejected at admission.
		`device.attributes["example.com"].rack == 1`: policy.Failed,
	} {
		list := []v1alpha1.DeviceExposurePolicy{policies(t, "selector: {cel: '"+expression+
			"'}\nexposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}")[0]}
		if got := policy.Resolve(discovery.Facts{Devices: devices}, list,
			policy.Node{}).Devices[0].Reasons[0].Outcome; got != outcome {
			t.Errorf("%s: got %s, want %s", expression, got, outcome)
		}
	}
}
