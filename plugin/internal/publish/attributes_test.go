package publish

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// attributeMachine is a machine on which files define attributes of devices.
type attributeMachine struct {
	*testMachine
	t   *testing.T
	dir string
}

func newAttributeMachine(
	f *fixture, host *discoverytest.Host, policies ...policyapi.DeviceExposurePolicy,
) *attributeMachine {
	m := &attributeMachine{t: f.T, dir: f.TempDir(), testMachine: sharedMachine(f, host, policies...)}
	directory := &nodeattributes.Directory{Path: m.dir}
	m.CNIDirs = []string{f.TempDir()}
	f.must(os.WriteFile(filepath.Join(m.CNIDirs[0], "macvlan"), nil, 0o700))
	m.Read = func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
		return ReadHost(m.host.Sources(), directory)(ctx, addresses)
	}
	return m
}

// write writes the machine's attribute file.
func (m *attributeMachine) write(content string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, "rack.json"), []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// expectRail checks the rail attribute that is published for a device.
func (m *attributeMachine) expectRail(device string, want int64) {
	m.t.Helper()
	if err := m.Refresh(context.Background()); err != nil {
		m.t.Fatal(err)
	}
	for _, pool := range m.published[len(m.published)-1].Pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				if d.Name != device {
					continue
				}
				if rail := d.Attributes["example.com/rail"].IntValue; rail == nil || *rail != want {
					m.t.Errorf("the rail of %s = %v, want %d", device, d.Attributes["example.com/rail"], want)
				}
				return
			}
		}
	}
	m.t.Errorf("%s is not published", device)
}

const ruledByRail = `has(device.attributes["example.com"].rail) && device.attributes["example.com"].rail > 2`

// Policy selectors read attributes from files, and devices are published with these attributes. An invalid file changes
// nothing and is reported as an event for the node.
func TestAttributesFromFiles(t *testing.T) {
	f := newFixture(t)
	m := newAttributeMachine(f, discoverytest.Machine(2, 0), expose("rails", ruledByRail, false))
	m.expect(t, "")
	m.write(`{"devices": [{"interface": "ens0", "attributes": {"example.com/rail": 3}},
		{"interface": "ens1", "attributes": {"example.com/rail": 2}}]}`)
	m.expect(t, "ens0")
	m.expectRail("ens0", 3)
	m.write(`{"devices": [{"interface": "ens0", "attributes": {"example.com/rail": 3}}`)
	m.expectRail("ens0", 3)
	events := m.Recorder.(*record.FakeRecorder).Events
	const want = "cannot use attribute file"
	if problems := m.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Text, want) {
		t.Errorf("problems = %v, want one about the attribute file", problems)
	}
	if event := <-events; !strings.Contains(event, want) || !strings.Contains(event, "netdra doctor --node n") {
		t.Errorf("wrong event: %s", event)
	}
	m.write(`{"devices": [{"allDevices": true, "attributes": {"example.com/rail": 4}}]}`)
	m.expect(t, "ens0 ens1")
	if problems := m.Problems(); len(problems) != 0 {
		t.Errorf("problems = %v, want none", problems)
	}
	if len(events) > 0 {
		t.Errorf("unexpected event: %s", <-events)
	}
}

// A policy overrides a value from a file. Attributes from both sources are passed to chains.
func TestPoliciesOverrideFiles(t *testing.T) {
	f := newFixture(t)
	policy := expose("all", "true", false)
	policy.Spec.Exposure.AttributesByPCIAddress = []policyapi.PCIAddressAttributes{{PCIAddress: "0000:18:00.0",
		Attributes: map[string]policyapi.AttributeValue{"example.com/rail": {Int: new(int64(7))}}}}
	m := newAttributeMachine(f, discoverytest.Machine(2, 0), policy)
	m.write(`{"devices": [{"allDevices": true, "attributes": {"example.com/rail": 1, "example.com/block": "b"}}]}`)
	facts, err := m.Read(t.Context(), nil)
	f.must(err)
	policy.Spec.Exposure.AttributesByPCIAddress[0].PCIAddress = string(facts.Devices[0].PCIAddress)
	m.expectRail("ens0", 7)
	m.expectRail("ens1", 1)
	_, device, err := m.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/ens0", Device: "ens0"})
	if err != nil || device.Attributes["example.com/rail"] != int64(7) ||
		device.Attributes["example.com/block"] != "b" {
		t.Errorf("Resolve returned attributes %v, error %v", device.Attributes, err)
	}
}

// Until its claim is released, a device keeps the attributes that it had when it was allocated, even while it is in a
// pod.
func TestHeldDevicesKeepAttributesFromFiles(t *testing.T) {
	f := newFixture(t)
	m := newAttributeMachine(f, discoverytest.Machine(1, 1), expose("rails", ruledByRail, false))
	m.write(`{"devices": [{"interface": "ens0", "attributes": {"example.com/rail": 3}}]}`)
	m.expect(t, "ens0 ens0v0") // the virtual function has the attributes of its physical function
	m.hold(f, "c", "n/ens0", "ens0v0")
	m.write(`{"devices": [{"interface": "ens0", "attributes": {"example.com/rail": 5}}]}`)
	m.expectRail("ens0v0", 3)
	m.expectRail("ens0", 5)
	f.must(os.Remove(filepath.Join(m.dir, "rack.json")))
	m.expect(t, "ens0v0")
	m.expectRail("ens0v0", 3)
	f.must(f.claims.Release("c"))
	m.expect(t, "")
}
