package publish

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// noLinks is a host without links.
type noLinks struct{ err error }

func (n *noLinks) LinkList() ([]netlink.Link, error)                    { return nil, n.err }
func (n *noLinks) RouteList(netlink.Link, int) ([]netlink.Route, error) { return nil, n.err }
func (n *noLinks) AddrList(netlink.Link, int) ([]netlink.Addr, error)   { return nil, n.err }

// newTestPublisher returns a publisher for a host without links and with one claim, which holds up0. Everything that
// the publisher publishes is appended to published.
func newTestPublisher(
	f *fixture, links *noLinks, publishErr *error,
) (p *Publisher, published *[]resourceslice.DriverResources) {
	published = &[]resourceslice.DriverResources{}
	p, _, err := New(Config{
		NodeName: "n", BootID: "boot", Cluster: f.cluster, Claims: f.claims, DB: f.db,
		Read: ReadHost(discovery.Sources{Sys: fstest.MapFS{"class/net": {Mode: 0o755 | 1<<31}}, Links: links},
			&nodeattributes.Directory{}),
		Quarantined: func(discovery.Device) bool { return false },
		MayBeInPod:  func(string, *claims.HeldDevice) bool { return true }, HealthChanged: func() {},
		Recorder: record.NewFakeRecorder(100), Metrics: NewMetrics(prometheus.NewRegistry()), Clock: f.clock,
		FreeMemory: func() {}, Heartbeats: telemetry.NewHeartbeats(f.clock),
	})
	f.must(err)
	p.server.known = &capabilities{}
	p.StartPublishing(func(_ context.Context, resources resourceslice.DriverResources) error {
		*published = append(*published, resources)
		return *publishErr
	})
	return p, published
}

// A device that is in use in a pod is not on the host, but remains published.
func TestDevicesInUseStayPublished(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "up0")
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.must(p.Refresh(context.Background()))
	if len(*published) != 1 || len((*published)[0].Pools["n/up0"].Slices) != 1 {
		t.Fatalf("wrong publication: %+v", *published)
	}
	if _, _, err := p.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/up0", Device: "up0"}); err != nil {
		t.Error(err)
	}
	f.must(f.claims.Release("claim-a"))
	f.must(p.Refresh(context.Background()))
	if len(*published) != 2 || len((*published)[1].Pools) != 0 {
		t.Errorf("wrong publication after the release: %+v", *published)
	}
}

// The bandwidth that a claim consumes from a link does not change while the claim exists.
func TestBandwidthInUseStaysAsItWas(t *testing.T) {
	f := newFixture(t)
	function := discovery.Device{
		Name: "pf0v0", Interface: "pf0v0", Type: discovery.TypeVF, Kind: "device", PCIAddress: "0000:01:00.1",
		PFName: "pf0", PFAddress: "0000:01:00.0",
	}
	f.must(f.claims.Hold(claims.Record{
		Claim:   cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"},
		Devices: []claims.HeldDevice{{Pool: "n/pf0", Name: "pf0v0", Exclusive: true, Bandwidth: 1234, Facts: function}},
	}, unchanged))
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.must(p.Refresh(context.Background()))
	for _, pool := range (*published)[0].Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				if amount := device.Capacity["dra.networking/bandwidth"].Value; amount.Value() != 1234 {
					t.Errorf("device %s has bandwidth %s, want 1234", device.Name, amount.String())
				}
			}
		}
	}
	held, device, err := p.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/pf0", Device: "pf0v0"})
	if err != nil || held.Bandwidth != 1234 || device.Attributes["bandwidth"] != int64(1234) {
		t.Errorf("got held device %+v, attributes %v, error %v", held, device.Attributes, err)
	}
}

func TestOnlyChangesArePublishedAndFailuresAgain(t *testing.T) {
	f := newFixture(t)
	failure := errors.New("no")
	p, published := newTestPublisher(f, &noLinks{}, &failure)
	if err := p.Refresh(context.Background()); err == nil {
		t.Error("Refresh returned no error, want the failure")
	}
	failure = nil
	for range 3 {
		f.must(p.Refresh(context.Background()))
	}
	if len(*published) != 2 {
		t.Errorf("published %d times, want once after the failure and never again", len(*published))
	}
}

// Devices are not offered for a plugin while the kernel does not support the link types that the plugin needs. Because
// the query loads modules, the kernel is not queried for plugins that are not installed or that no policy for the node
// names.
func TestDevicesAreNotOfferedForWhatTheKernelLacks(t *testing.T) {
	f := newFixture(t)
	f.cluster.policies[0].Spec.Exposure.SupportedCNIPlugins = []policyapi.CNIPlugin{
		{Name: "tap"}, {Name: "ipvlan"}, {Name: "macvlan"}}
	elsewhere := f.cluster.policies[0].DeepCopy()
	elsewhere.Name, elsewhere.Spec.NodeSelector = "elsewhere", &metav1.LabelSelector{
		MatchLabels: map[string]string{"kind": "other"}}
	elsewhere.Spec.Exposure.SupportedCNIPlugins = []policyapi.CNIPlugin{{Name: "bond"}}
	f.cluster.policies = append(f.cluster.policies, *elsewhere)
	dir := t.TempDir()
	for _, name := range []string{"tap", "ipvlan", "vlan", "bond"} {
		f.must(os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	p.CNIDirs = []string{dir}
	p.Read = func(context.Context, []netip.Addr) (facts discovery.Facts, err error) {
		facts.Devices = []discovery.Device{{Name: "up0", Interface: "up0", Type: discovery.TypeNIC}}
		return facts, nil
	}
	missing := []string{"ipvlan"}
	p.MissingLinkTypes = func(linkTypes []string) ([]string, error) {
		if !slices.Equal(linkTypes, []string{"ipvlan"}) {
			t.Errorf("queried link types = %v, want ipvlan", linkTypes)
		}
		return missing, nil
	}
	offered := func() (plugins []string) {
		f.must(p.Refresh(context.Background()))
		for _, device := range (*published)[len(*published)-1].Pools["n/up0"].Slices[0].Devices {
			plugins = append(plugins, *device.Attributes[policy.SupportedCNIs].StringValue)
		}
		return plugins
	}
	if got := offered(); !slices.Equal(got, []string{",tap,"}) {
		t.Errorf("offered for plugins %v, want tap only", got)
	}
	why := "the kernel does not support links of type ipvlan; install the module"
	if got := p.UnusableCNIs(); len(got) != 1 || !strings.HasPrefix(got["ipvlan"], why) {
		t.Errorf("unusable plugins = %v, want ipvlan", got)
	}
	problems := p.Problems()
	if !slices.ContainsFunc(problems, func(problem nodestate.Problem) bool { return strings.Contains(problem.Text, why) }) {
		t.Errorf("problems = %v, want the reason for ipvlan", problems)
	}
	missing = nil
	if got := offered(); !slices.Equal(got, []string{",tap,ipvlan,"}) || len(p.UnusableCNIs()) > 0 {
		t.Errorf("offered for plugins %v, unusable plugins %v", got, p.UnusableCNIs())
	}
}

// If the host cannot be read, devices are not treated as gone.
func TestUnreadableHostKeepsWhatIsPublished(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "up0")
	links := &noLinks{}
	p, published := newTestPublisher(f, links, new(error))
	f.must(p.Refresh(context.Background()))
	links.err = errors.New("interrupted")
	if err := p.Refresh(context.Background()); err == nil {
		t.Error("Refresh returned no error, want the failure")
	}
	if len(*published) != 1 {
		t.Errorf("published %d times, want 1", len(*published))
	}
}

// If the node's labels are unknown, the published slices stay unchanged: policies that select nodes cannot be resolved,
// and an exclude policy would not exclude anything.
func TestUnknownNodeKeepsWhatIsPublished(t *testing.T) {
	f := newFixture(t)
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.cluster.node = nil
	if err := p.Refresh(context.Background()); err == nil || len(*published) != 0 {
		t.Errorf("error = %v, published %d times, want an error and no publication", err, len(*published))
	}
}

// testMachine publishes the devices of a machine whose recording tests can change, with policies that expose every
// device.
type testMachine struct {
	*Publisher
	host      *discoverytest.Host
	published []resourceslice.DriverResources
}

func newTestMachine(f *fixture, host *discoverytest.Host) *testMachine {
	m := &testMachine{host: host}
	m.Publisher, _ = newTestPublisher(f, &noLinks{}, new(error))
	m.Read = func(ctx context.Context, _ []netip.Addr) (discovery.Facts, error) {
		return discovery.Read(ctx, m.host.Sources())
	}
	m.StartPublishing(func(_ context.Context, resources resourceslice.DriverResources) error {
		m.published = append(m.published, *resources.DeepCopy())
		return nil
	})
	return m
}

// devices returns the names of the most recently published devices, each with the value of its taint.
func (m *testMachine) devices() string {
	var names []string
	last := m.published[len(m.published)-1]
	for _, pool := range slices.Sorted(maps.Keys(last.Pools)) {
		for _, slice := range last.Pools[pool].Slices {
			for _, device := range slice.Devices {
				name := device.Name
				for _, taint := range device.Taints {
					name += ":" + taint.Value
				}
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, " ")
}

func (m *testMachine) expect(t *testing.T, want string) {
	t.Helper()
	if err := m.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := m.devices(); got != want {
		t.Errorf("published %s\nwant      %s", got, want)
	}
}

// hold prepares a claim for a published device.
func (m *testMachine) hold(f *fixture, claim, pool, device string) {
	f.Helper()
	held, _, err := m.Resolve(&resourceapi.DeviceRequestAllocationResult{Request: "r", Pool: pool, Device: device})
	f.must(err)
	f.must(f.claims.Hold(claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim},
		Devices: []claims.HeldDevice{held}}, unchanged))
}

// The number of virtual functions changes while one of them is allocated. The device of an allocated function remains
// published and is tainted once the function no longer exists. The bandwidth counter that the device consumes also
// remains.
func TestFunctionsComeAndGoUnderClaims(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.expect(t, "ens0 ens0v0 ens0v1")
	m.hold(f, "c", "n/ens0", "ens0v1")
	m.host = discoverytest.Machine(1, 0)
	m.expect(t, "ens0 ens0v1:gone")
	m.host = discoverytest.Machine(1, 4)
	m.expect(t, "ens0 ens0v0 ens0v1 ens0v2 ens0v3")
	m.host = discoverytest.NewHost()
	m.expect(t, "ens0v1:gone")
	f.must(f.claims.Release("c"))
	m.expect(t, "")
	if len(m.published) != 5 {
		t.Errorf("published %d times, want 5", len(m.published))
	}
}

// After its policy is deleted, an allocated device stays published until the claim is released, so that the scheduler
// does not allocate it again.
func TestWithdrawnPolicies(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.expect(t, "ens0 ens0v0 ens0v1")
	m.hold(f, "c", "n/ens0", "ens0v0")
	f.cluster.policies = nil
	m.expect(t, "ens0v0:withdrawn")
	// The scheduler can still allocate the device to claims that tolerate every taint, but Resolve rejects such a
	// claim.
	_, _, err := m.Resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/ens0", Device: "ens0v0"})
	if err == nil || !strings.Contains(err.Error(), "is no longer offered: no policy offers it in this way") {
		t.Errorf("error = %v, want \"is no longer offered\"", err)
	}
	// This is not a problem: the taint indicates the state, and no action is required.
	for _, problem := range m.problems {
		if strings.Contains(problem.Text, "ens0v0") {
			t.Errorf("unexpected problem %q", problem.Text)
		}
	}
	f.must(f.claims.Release("c"))
	m.expect(t, "")
}

func TestQuarantinedDevicesAreTainted(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.Quarantined = func(device discovery.Device) bool { return device.Name == "ens0v1" }
	m.expect(t, "ens0 ens0v0 ens0v1:quarantined")
	// Of each Spec, netdra gets only the taints, because the rest would take up half of the driver's memory.
	for _, entry := range m.Offered() {
		want := resourceapi.Device{}
		if entry.Name == "ens0v1" {
			want.Taints = []resourceapi.DeviceTaint{{Key: taintKey, Value: taintQuarantined,
				Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		if diff := cmp.Diff(want, entry.Spec); diff != "" {
			t.Errorf("%s: wrong device (-want +got):\n%s", entry.Name, diff)
		}
	}
}

// Without the features that keep devices apart, no device is published. This is reported once, as an event for the
// node.
func TestMissingFeatures(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.server.known = &capabilities{missing: draslices.MissingFeatures{Counters: true},
		problems: []string{"DRAPartitionableDevices is off"}}
	m.server.asked = f.clock.Now()
	m.expect(t, "")
	m.expect(t, "")
	recorder, ok := m.Recorder.(*record.FakeRecorder)
	if !ok {
		t.Fatal("the recorder is not a FakeRecorder")
	}
	close(recorder.Events)
	told := 0
	for event := range recorder.Events {
		if strings.Contains(event, "DRAPartitionableDevices is off") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("reported %d times, want 1", told)
	}
}

// A remark appears in the output of netdra and in the log, but does not cause an event about missing devices.
func TestRemarksAreNoEvents(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	events := record.NewFakeRecorder(10)
	m.Recorder = events
	m.reportProblems(t.Context(), []finding{
		{Problem: nodestate.Problem{Source: fromSlices, Policy: "all", Text: "a remark", Remark: true}},
		{Problem: nodestate.Problem{Source: fromSlices, Policy: "all", Text: "a fault"}}}, &policy.Decision{},
		&draslices.Result{})
	close(events.Events)
	var told []string
	for event := range events.Events {
		told = append(told, event)
	}
	if len(told) != 1 || !strings.Contains(told[0],
		`DevicesNotOffered node n: a fault; "kubectl netdra doctor --node n" checks the node`) {
		t.Errorf("wrong events: %q", told)
	}
	want := []nodestate.Problem{{Source: fromSlices, Policy: "all", Text: "a remark", Remark: true},
		{Source: fromSlices, Policy: "all", Text: "a fault"}}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("wrong problems (-want +got):\n%s", diff)
	}
}

// storm is an event source whose notifications are sent by tests.
type storm struct{ changed func() }

// Subscribe implements discovery.Events.
func (s *storm) Subscribe(ctx context.Context, changed func()) (<-chan error, error) {
	s.changed = changed
	broken := make(chan error, 1)
	context.AfterFunc(ctx, func() { broken <- context.Cause(ctx) })
	return broken, nil
}

// A hundred changes within a second cause at most two writes. Changes to links that no policy selects, flapping links
// and scans cause none.
func TestStormsOfChanges(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(2, 8))
	events := &storm{}
	m.Events, m.period, m.Clock = events, time.Minute, clock.RealClock{} // the clock of the synctest bubble
	for _, test := range []struct {
		name        string
		change      func(i int, link *discovery.RecordedLink)
		least, most int // number of writes
	}{
		{"flaps", func(i int, link *discovery.RecordedLink) {
			link.OperState, link.Carrier = []string{"up", "down"}[i%2], i%2 == 0
		}, 1, 1}, // the taint for a lost carrier, which stays while the link flaps
		{"MTU", func(i int, link *discovery.RecordedLink) { link.MTU = 1501 + i }, 1, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				m.triggers, m.soon = make(chan struct{}, 1), make(chan struct{}, 1) // created in this bubble
				changes, err := m.Watch(ctx)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() { defer close(done); m.Run(ctx, changes) }()
				synctest.Wait()
				before := len(m.published)
				for i := range 100 {
					test.change(i, m.host.Link("ens0"))
					if i%2 == 1 {
						m.host.Speed("ens0", -1)
					} else {
						m.host.Speed("ens0", 100000)
					}
					events.changed()
					time.Sleep(10 * time.Millisecond) // in the bubble's time
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if writes := len(m.published) - before; writes < test.least || writes > test.most {
					t.Errorf("wrong number of writes: %d", writes)
				}
				cancel()
				<-done
			})
		})
	}
}

// The first publication after a start replaces the slices from the previous driver process and its policies. It is not
// delayed in proportion to the duration of the first scan.
func TestFirstPublicationIsSoon(t *testing.T) {
	f := newFixture(t)
	m := newTestMachine(f, discoverytest.Machine(1, 2))
	m.Events, m.period = &storm{}, time.Minute
	synctest.Test(t, func(t *testing.T) {
		m.triggers, m.soon = make(chan struct{}, 1), make(chan struct{}, 1) // created in this bubble
		begun := false
		f.must(m.Settle(t.Context(), func(context.Context, resourceslice.DriverResources) error {
			begun = true
			return nil
		}))
		f.must(m.Refresh(t.Context()))
		if !begun || len(m.soon) != 1 {
			t.Errorf("publishing started: %v, %d computations requested soon, want one", begun, len(m.soon))
		}
	})
}

// Scans use at most a tenth of a CPU, regardless of what triggers them, and requests that arrive during a scan or a
// pause are still served.
func TestReadingsKeepADistance(t *testing.T) {
	for name, test := range map[string]struct{ reading, pause time.Duration }{
		"quick":     {reading: time.Millisecond, pause: shortestPause},
		"expensive": {reading: time.Second, pause: 10 * time.Second},
		"stalled":   {reading: time.Hour, pause: longestPause},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			m := newTestMachine(f, discoverytest.Machine(1, 2))
			read, readings := m.Read, 0
			meanwhile := func() {} // what happens during a scan
			m.Read = func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
				readings++
				meanwhile()
				f.clock.Step(test.reading)
				return read(ctx, addresses)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				m.triggers, m.soon = make(chan struct{}, 1), make(chan struct{}, 1) // created in this bubble
				done := make(chan struct{})
				changes := make(chan struct{}, 1)
				go func() { defer close(done); m.Run(ctx, changes) }()
				expect := func(want int, when string) {
					t.Helper()
					synctest.Wait()
					if readings != want {
						t.Errorf("got %d readings %s, want %d", readings, when, want)
					}
				}
				expect(1, "at the start")
				m.Trigger()
				expect(1, "after a trigger")
				f.clock.Step(test.pause - time.Millisecond)
				expect(1, "before the end of the pause")
				changes <- struct{}{}
				f.clock.Step(time.Millisecond)
				expect(2, "after the pause")
				m.Trigger()
				synctest.Wait()
				m.Trigger()
				f.clock.Step(test.pause)
				for range startsLimit/shortestPause - 1 {
					expect(2, "while claims are being prepared")
					m.Trigger()
					f.clock.Step(shortestPause)
				}
				m.Trigger()
				expect(2, "before the limit")
				f.clock.Step(shortestPause)
				expect(3, "after the limit")
				m.Trigger()
				synctest.Wait()
				m.Trigger()
				f.clock.Step(test.pause)
				expect(3, "after another claim")
				f.clock.Step(shortestPause)
				expect(4, "when no further claim followed")
				m.Trigger()
				synctest.Wait()
				m.Trigger()
				f.clock.Step(test.pause)
				expect(4, "after another claim")
				m.TriggerSoon()
				expect(5, "when a policy changes while claims are being prepared")
				readings = 2
				m.TriggerSoon()
				expect(2, "right after a policy has changed, which nothing else has asked for")
				f.clock.Step(shortestPause)
				expect(3, "a moment after a policy has changed, right after a reading")
				f.clock.Step(test.pause)
				expect(3, "without another trigger")
				m.Trigger()
				expect(3, "right after a trigger")
				f.clock.Step(shortestPause)
				expect(4, "when a trigger came long after the last reading")
				changes <- struct{}{}
				expect(4, "right after a change")
				meanwhile = m.Trigger
				f.clock.Step(test.pause)
				expect(5, "after a change")
				meanwhile = func() {}
				f.clock.Step(test.pause)
				expect(6, "after a trigger during the last reading")
				f.clock.Step(test.pause)
				expect(6, "without another reason")
				m.TriggerSoon()
				expect(6, "immediately")
				f.clock.Step(shortestPause - time.Millisecond)
				expect(6, "right after a policy has changed")
				f.clock.Step(time.Millisecond)
				expect(7, "a moment after a policy has changed")
				m.Trigger()
				expect(7, "after a trigger")
				m.TriggerSoon()
				expect(7, "after a trigger and a change of a policy")
				f.clock.Step(shortestPause)
				expect(8, "a moment after a policy has changed in a pause")
				f.clock.Step(test.pause)
				expect(8, "without another reason than that")
				m.Trigger()
				cancel() // also interrupts a pause
				<-done
			})
		})
	}
}
