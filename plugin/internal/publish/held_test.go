package publish

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// expose returns a policy that exposes the devices selected by a CEL expression.
func expose(name, cel string, shared bool) policyapi.DeviceExposurePolicy {
	return policyapi.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyapi.DeviceExposurePolicySpec{
			Action: policyapi.ActionExpose, Selector: policyapi.DeviceSelector{CEL: cel},
			Exposure: &policyapi.Exposure{AllowMultipleAllocations: shared,
				SupportedCNIPlugins: []policyapi.CNIPlugin{{Name: "macvlan", Exclusive: !shared}}},
		}}
}

// sharedMachine returns a machine with the given policies instead of the policy that exposes every device exclusively.
func sharedMachine(f *fixture, host *discoverytest.Host, policies ...policyapi.DeviceExposurePolicy) *testMachine {
	m := newTestMachine(f, host)
	f.cluster.policies = policies
	return m
}

// A shared device never leaves the host, so its current state is published even while it is in use.
func TestSharedDevicesFollowTheFacts(t *testing.T) {
	f := newFixture(t)
	m := sharedMachine(f, discoverytest.Machine(1, 0),
		expose("all", `!device.attributes["dra.networking"].defaultRoute`, true))
	m.expect(t, "ens0")
	m.hold(f, "c", "n/ens0", "ens0")
	m.host.DefaultRoute("ens0")
	m.expect(t, "ens0:withdrawn")
	f.must(f.claims.Release("c"))
	m.expect(t, "")
}

func TestSharedDeviceThatIsGone(t *testing.T) {
	f := newFixture(t)
	m := sharedMachine(f, discoverytest.Machine(1, 0), expose("all", "true", true))
	m.expect(t, "ens0")
	m.hold(f, "c", "n/ens0", "ens0")
	m.host = discoverytest.NewHost()
	m.expect(t, "ens0:gone")
}

// A device keeps its published name, but plugins are given the current name of its interface.
func TestSharedDeviceThatIsRenamed(t *testing.T) {
	f := newFixture(t)
	m := sharedMachine(f, discoverytest.Machine(1, 0), expose("all", "true", true))
	m.expect(t, "ens0")
	m.hold(f, "c", "n/ens0", "ens0")
	m.Read = func(ctx context.Context, _ []netip.Addr) (discovery.Facts, error) {
		facts, err := discovery.Read(ctx, m.host.Sources())
		facts.Devices[0].Name, facts.Devices[0].Interface = "lan0", "lan0"
		return facts, err
	}
	m.expect(t, "ens0")
	_, device, err := m.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/ens0", Device: "ens0"})
	if err != nil || device.IfName != "lan0" {
		t.Errorf("Resolve returned interface %s, error %v, want lan0", device.IfName, err)
	}
}

// Virtual functions are created on a shared physical function while it is in use, and share its link.
func TestSharesUnderASharedFunction(t *testing.T) {
	f := newFixture(t)
	m := sharedMachine(f, discoverytest.Machine(1, 2),
		expose("pf", `device.attributes["dra.networking"].type == "pf"`, true),
		expose("vf", `device.attributes["dra.networking"].type == "vf"`, false))
	m.expect(t, "ens0 ens0v0 ens0v1")
	m.hold(f, "c", "n/ens0", "ens0")
	m.host = discoverytest.Machine(1, 8)
	f.must(m.Refresh(context.Background()))
	var sum, link int64
	for _, entry := range m.Offered() {
		sum += entry.Bandwidth
		link = max(link, int64(entry.Device.LinkSpeed))
	}
	if sum == 0 || sum > link {
		t.Errorf("the VFs have %d Mbit/s in total, but the link has %d", sum, link)
	}
}

// Once an API server has returned a slice without counters, no slice is published with counters, regardless of what
// another API server reports, and the slices are still written.
func TestDroppedFieldsAreNotPublishedAgain(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.expect(t, "ens0 ens0v0 ens0v1")
	desired := &resourceapi.ResourceSlice{Spec: counterSlice()}
	m.HandleError(context.Background(), &resourceslice.DroppedFieldsError{PoolName: "n/ens0", DesiredSlice: desired,
		ActualSlice: &resourceapi.ResourceSlice{}}, "dropped")
	m.expect(t, "")
	m.server.known = &capabilities{}
	m.expect(t, "ens0 ens0v0 ens0v1")
	m.HandleError(context.Background(),
		&resourceslice.DroppedFieldsError{PoolName: "n/ens0", DesiredSlice: &resourceapi.ResourceSlice{},
			ActualSlice: &resourceapi.ResourceSlice{}}, "something else")
	before := len(m.published)
	f.must(m.Refresh(context.Background()))
	if len(m.published) == before {
		t.Error("a slice that the API server changed was not written again")
	}
}

func counterSlice() resourceapi.ResourceSliceSpec {
	for _, known := range (&apiServer{}).features() {
		if known.name == partitionableDevices {
			return known.probe
		}
	}
	return resourceapi.ResourceSliceSpec{}
}

// The driver remembers lost carriers across restarts.
func TestLostCarriersAreRemembered(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 0))
	m.expect(t, "ens0")
	m.host.Link("ens0").Carrier = false
	m.expect(t, "ens0:no-carrier")
	newTestMachine(f, m.host).expect(t, "ens0:no-carrier")
}

// A virtual function is not considered gone while its physical function is in a pod.
func TestFunctionsOfAPhysicalFunctionThatIsAway(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.expect(t, "ens0 ens0v0 ens0v1")
	m.hold(f, "c", "n/ens0", "ens0v1")
	m.host.Remove("ens0")
	m.expect(t, "ens0v1")
}

// The names of devices that claims hold are stored immediately.
func TestNamesOfHeldDevicesAreKept(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 1))
	m.expect(t, "ens0 ens0v0")
	m.hold(f, "c", "n/ens0", "ens0v0")
	f.must(m.Refresh(context.Background()))
	f.must(f.claims.Release("c"))
	if name := m.memory.kept.Names["0000:03:00.0"]; name != "ens0" {
		t.Errorf("kept names = %v, want ens0", m.memory.kept.Names)
	}
}

// A new NIC is not mistaken for the device that previously had its interface name.
func TestKeptNamesAreNotTaken(t *testing.T) {
	f := newFixture(t)
	m, _, err := loadDeviceMemory(f.db, "boot-1", f.clock)
	f.must(err)
	read := func(names map[discovery.PCIAddress]discovery.IfName) map[discovery.PCIAddress]discovery.IfName {
		var facts discovery.Facts
		for address, name := range names {
			facts.Devices = append(facts.Devices, discovery.Device{Name: name, Interface: name, Type: discovery.TypeNIC,
				PCIAddress: address})
		}
		facts = m.restore(facts).With()
		f.must(m.keep(facts, nil, nil))
		got := map[discovery.PCIAddress]discovery.IfName{}
		for _, device := range facts.Devices {
			got[device.PCIAddress] = device.Name
		}
		return got
	}
	for range 2 {
		read(map[discovery.PCIAddress]discovery.IfName{"0000:05:00.0": "eth1"})
		f.clock.Step(settleTime)
	}
	got := read(map[discovery.PCIAddress]discovery.IfName{"0000:05:00.0": "old1", "0000:03:00.0": "eth1"})
	if got["0000:05:00.0"] != "eth1" {
		t.Errorf("devices = %v", got)
	}
}

// Pod links appear and disappear without causing a write to the journal. A name that has not settled yet is checked
// again later.
func TestMemoryOfPodsLinks(t *testing.T) {
	f := newFixture(t)
	m, _, err := loadDeviceMemory(f.db, "boot-1", f.clock)
	f.must(err)
	nic := discovery.Device{Name: "eth0", Interface: "eth0", Type: discovery.TypeNIC, PCIAddress: "0000:01:00.0",
		LinkSpeed: 1000}
	f.must(m.keep(discovery.Facts{Devices: []discovery.Device{nic}}, nil, nil))
	if wait := m.retryAfter(); wait != settleTime {
		t.Errorf("time until the next check = %s, want the settle time", wait)
	}
	f.clock.Step(settleTime)
	f.must(m.keep(discovery.Facts{Devices: []discovery.Device{nic}}, nil, nil))
	if wait := m.retryAfter(); wait != 0 {
		t.Errorf("time until the next check = %s, want 0", wait)
	}
	m.bucket = nil
	before := m.kept
	f.must(m.keep(discovery.Facts{Devices: []discovery.Device{nic,
		{Name: "veth1", Type: "veth", Kind: "veth", LinkSpeed: 10000}}}, nil, nil))
	if len(m.kept.Speeds) != len(before.Speeds) {
		t.Errorf("kept speeds = %v, want no speed of a pod link", m.kept.Speeds)
	}
}

// As long as the devices are unknown, Readiness returns the reason.
func TestDevicesThatAreNotKnown(t *testing.T) {
	m := newTestMachine(newFixture(t), discoverytest.Machine(1, 0))
	for failure, want := range map[string]string{"": "not known yet: the driver is starting",
		"the API server refuses list attributes": "not known yet: the API server refuses list attributes"} {
		if failure != "" {
			m.offers.fail(errors.New(failure))
		}
		_, _, err := m.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/up1", Device: "up1"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wrong error: %v", err)
		}
		m.offers.fail(nil)
	}
}
