package plugin

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/plugin/nritest"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// runtimeName selects the simulated runtime for tests that do not choose one themselves. "make test" runs all tests
// with both runtimes.
var runtimeName = flag.String("nri-runtime", nritest.Containerd().Name, "name of the profile of the container runtime")

// fixture is a driver without a kubelet, a runtime or an API server, on a test node with two exclusive links, up0 and
// up1, and a topology t that runs host-device, then tuning.
type fixture struct {
	*testing.T
	dir      string
	node     *cnitest.Node
	clock    *testingclock.FakeClock
	db       *journal.DB
	chains   *journal.Chains
	claims   *claims.Store
	cluster  *cluster
	boxes    *attach.Sandboxes
	gate     attach.Gate
	pinDir   string
	dra      *draPlugin
	nri      *nriPlugin
	stopWork context.CancelFunc
	metrics  *metrics

	// unhealthy returns the health problem of a device.
	unhealthy map[discovery.IfName]string
	// busyLinks maps each link that the node itself uses to the way it is used.
	busyLinks map[discovery.IfName]discovery.Use
	// missingLinkTypes is the set of link types that the kernel does not support.
	missingLinkTypes sets.Set[string]
	// journalLost is true if a journal was set aside.
	journalLost bool

	// runtime is the container runtime. Unless it is started (see startRuntime), tests call the driver directly.
	runtime *nritest.Runtime
	// events records the events for the Node object.
	events *record.FakeRecorder
	bootID string
	// client serves the claims that recover reads.
	client *fake.Clientset
	// failAgain is the error returned by the next attempt to prepare a claim again.
	failAgain error
	// podsGone contains the pods that no longer exist in the API server, by UID.
	podsGone map[string]bool

	mu     sync.Mutex
	failed []string
	lost   []string
	// described lists the devices in the metadata for containers.
	described []kubeletplugin.Device
}

func newFixture(t *testing.T) *fixture {
	for _, profile := range nritest.Profiles() {
		if profile.Name == *runtimeName {
			return newFixtureOn(t, profile)
		}
	}
	t.Fatalf("no profile has the name %q", *runtimeName)
	return nil
}

// newFixtureOn returns a fixture with the given kind of container runtime.
func newFixtureOn(t *testing.T, profile nritest.Profile) *fixture {
	f := &fixture{T: t, dir: t.TempDir(), pinDir: "/run/netns", podsGone: map[string]bool{},
		node: cnitest.NewNode("up0", "up1"), clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	f.runtime = nritest.New(profile, f.node, f.cdiDir())
	f.must(os.MkdirAll(f.pluginDir(), 0o755))
	for name := range testPlugins() {
		f.must(os.WriteFile(filepath.Join(f.pluginDir(), name), nil, 0o755))
	}
	f.start("boot-1")
	t.Cleanup(f.crash)
	return f
}

// start starts the driver with the state from the journal and connects it to the runtime.
func (f *fixture) start(bootID string) {
	f.Helper()
	f.startAlone(bootID)
	f.connect()
}

// connect connects the driver to the runtime, which then lists its sandboxes.
func (f *fixture) connect(containers ...*api.Container) {
	f.Helper()
	for _, container := range containers {
		f.runtime.SetContainer(container)
	}
	connection := &nriConnection{nriPlugin: f.nri, configured: func() {}}
	pods, containers := f.runtime.List()
	_, err := connection.Synchronize(context.Background(), pods, containers)
	f.must(err)
}

// sandboxOf returns the sandbox with an ID of the form "pod-attempt".
func sandboxOf(id string) nritest.Pod {
	pod := podNamed(id)
	return nritest.Pod{ID: id, UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
}

// sandbox returns a sandbox as the runtime describes it.
func (f *fixture) sandbox(id string) *api.PodSandbox { return f.runtime.Sandbox(sandboxOf(id)) }

// runs creates a sandbox with a network namespace in the runtime.
func (f *fixture) runs(id string) (netns string) { return f.runtime.Add(sandboxOf(id)) }

// ends removes a sandbox from the runtime without notifying the driver.
func (f *fixture) ends(id string) { f.runtime.Forget(id) }

// startAlone starts the driver without connecting it to the runtime.
func (f *fixture) startAlone(bootID string) {
	f.Helper()
	if f.bootID != bootID {
		f.runtime.Reboot()
	}
	f.bootID = bootID
	opened, err := journal.Open(filepath.Join(f.dir, "journal.db"), testingclock.NewFakeClock(f.clock.Now()))
	f.must(err)
	f.db = opened.DB
	var work context.Context
	work, f.stopWork = context.WithCancel(context.Background())
	f.claims, _, err = claims.Load(opened.DB)
	f.must(err)
	f.chains, err = journal.NewChains(opened.DB)
	f.must(err)
	runner := executor.New(executor.Options{Exec: f.node, Host: f.node, Journal: f.chains,
		Dirs: []string{f.pluginDir()}, Clock: f.clock})
	left, _, err := f.chains.Load(runner)
	f.must(err)
	f.gate = attach.NewGate(f.cdiDir(), "/plugins/bin/dra-network-cni")
	f.must(os.MkdirAll(f.cdiDir(), 0o755))
	f.metrics = newMetrics("v1")
	f.boxes = attach.New(attach.Config{Work: work, Executor: runner, Claims: f.claims, Gate: f.gate, Clock: f.clock,
		Observer: f, Metrics: f.metrics.attach, Node: "n", BootID: bootID, PinDir: f.pinDir})
	f.events = record.NewFakeRecorder(100)
	statuses := status.New(status.Config{Client: fake.NewClientset(), Events: f.events,
		Claims: f.claims, Attachments: f.boxes, Clock: f.clock, Node: "n"})
	f.unhealthy = map[discovery.IfName]string{}
	health := status.NewHealth(f.claims,
		func(_ string, held *claims.HeldDevice) string { return f.unhealthy[held.Facts.Name] }, f.clock)
	f.cluster = testCluster()
	parts := components{Cluster: f.cluster, Claims: f.claims, Sandboxes: f.boxes, Executor: runner, Gate: f.gate,
		External: external.New(f.cdiDir(), f.infoDir(), f.claims, func() bool { return f.journalLost }),
		Statuses: statuses, Health: health, Metrics: f.metrics, Clock: f.clock, Work: work, Observer: f,
		Publisher: f.newPublisher(nil)}
	f.nri = newNRIPlugin(nriConfig{components: parts})
	f.dra = newDRAPlugin(draConfig{
		components: parts, Connected: f.nri.runtime.isConnected, Busy: f.busy,
		MissingLinkTypes: func(types []string) ([]string, error) {
			return slices.DeleteFunc(types,
				func(linkType string) bool { return !f.missingLinkTypes.Has(linkType) }), nil
		},
		Fatal: func(err error) { f.Error(err) },
	})
	f.offer("host-device")
	f.must(f.boxes.Recover(left))
}

// setPublisher replaces the publisher that Prepare uses.
func (f *fixture) setPublisher(publisher *publish.Publisher) {
	config := f.dra.draConfig
	config.Publisher = publisher
	f.dra = newDRAPlugin(config)
}

// cdiDir returns the directory that contains the gate files.
func (f *fixture) cdiDir() string { return filepath.Join(f.dir, "cdi") }

// infoDir returns the directory that contains the device information files.
func (f *fixture) infoDir() string { return filepath.Join(f.dir, "devinfo", "dp") }

// pluginDir returns a directory with files named after the plugins of the test node: the executor uses the file system
// to identify the binary that it has probed.
func (f *fixture) pluginDir() string { return filepath.Join(f.dir, "cni") }

// crash simulates a crash of the driver as closely as a test can: nothing is retried, and the journal is closed.
func (f *fixture) crash() {
	f.stopWork()
	f.boxes.FinishWork()
	f.must(f.db.Close())
}

// baselines completes a record in the same way as Prepare.
func (f *fixture) baselines(record *claims.Record) error {
	return f.dra.snapshot(context.Background(), record)
}

// busy returns the uses that the test has set in busyLinks.
func (f *fixture) busy(context.Context, ...discovery.IfName) (map[discovery.IfName]discovery.Use, error) {
	return f.busyLinks, nil
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// AttachFailed implements Observer.
func (f *fixture) AttachFailed(pod executor.Pod, _ []claims.Record, err error, again time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, pod.Name+" "+again.String()+" "+err.Error())
}

// DetachFailed implements Observer.
func (f *fixture) DetachFailed(executor.Pod, error) {}

// InterfacesChanged implements Observer.
func (f *fixture) InterfacesChanged(pod executor.Pod, _ []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = append(f.lost, fmt.Sprint(pod.Name, ": ", err))
}

// DescribeClaims implements Observer.
func (f *fixture) DescribeClaims(_ context.Context, records []claims.Record) (complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range records {
		f.described = append(f.described, f.dra.devices(&records[i])...)
	}
	return true
}

// Attached implements Observer.
func (f *fixture) Attached([]claims.Record) {}

// AttachedLate implements Observer.
func (f *fixture) AttachedLate(_ executor.Pod, records []claims.Record) {
	f.dra.Health.Attached(records)
}

// sweeper returns the driver's sweeper.
func (f *fixture) sweeper() *attach.Sweeper {
	return &attach.Sweeper{Sandboxes: f.boxes, PodHasEnded: func(pod executor.Pod) bool { return f.podsGone[pod.UID] }}
}

// prepared records a pod's claim for up0 or up1 in the same way as Prepare.
func (f *fixture) prepared(claim, podUID, link string) claims.Record {
	f.Helper()
	_, device, err := f.dra.Publisher.Resolve(&resourceapi.DeviceRequestAllocationResult{Request: "r", Pool: "n/" +
		link, Device: link})
	f.must(err)
	topology := testTopology()
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: testPlugins(), Devices: []cnichain.RootDevice{{Step: "link", Device: device}},
	})
	if len(problems) > 0 {
		f.Fatal(problems)
	}
	made := claims.Record{
		Claim: plan.Claim, Consumers: []claims.Consumer{{PodUID: podUID, Claims: []string{claim}}},
		Plans: []cnichain.Plan{*plan},
		Devices: []claims.HeldDevice{{Request: "r", Pool: "n/" + link, Name: link, Exclusive: true,
			Facts: discovery.Device{Name: discovery.IfName(link)}}},
	}
	f.must(f.claims.Hold(made, asItIs))
	return made
}

func (f *fixture) attach(sandbox string, records ...claims.Record) error {
	return f.boxes.Attach(context.Background(), sandbox, podNamed(sandbox), f.runs(sandbox), records)
}

// expect checks the state of the node and the set of claims whose gates are open.
func (f *fixture) expect(node string, gates ...string) {
	f.Helper()
	if got := attempts.ReplaceAllString(f.node.String(), "$1"); got != node {
		f.Errorf("node = %s\nwant   %s", got, node)
	}
	entries, err := os.ReadDir(filepath.Join(f.dir, "cdi"))
	f.must(err)
	var open []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue // CDI does not read this file
		}
		open = append(open, strings.TrimSuffix(strings.TrimPrefix(entry.Name(), chainapi.DriverName+"-"), ".json"))
	}
	if strings.Join(open, " ") != strings.Join(gates, " ") {
		f.Errorf("open gates = %v, want %v", open, gates)
	}
}

// eventually waits until other goroutines have made the condition true.
func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			f.Fatalf("condition not met after 20 s: %s; node: %s", what, f.node)
		case <-tick.C:
		}
	}
}

// ready reports whether a sandbox is ready and its gates are open.
func (f *fixture) ready(id string) bool {
	for _, state := range f.boxes.States() {
		if state.ID != id || state.State != nodestate.SandboxReady {
			continue
		}
		for _, claim := range state.Claims {
			if pins, err := f.gate.Namespaces(claim); err != nil || !slices.Contains(pins, state.Pin) {
				return false
			}
		}
		return true
	}
	return false
}

// addPod adds a pod to the API server, and its stripped form to the cache.
func (f *fixture) addPod(pod *corev1.Pod) {
	f.Helper()
	f.must(f.cluster.client.(*fake.Clientset).Tracker().Add(pod.DeepCopy()))
	kept, err := stripPod(pod.DeepCopy())
	f.must(err)
	f.must(f.cluster.pods.GetStore().Add(kept))
}

// step advances the clock once a goroutine is waiting for it.
func (f *fixture) step(d time.Duration) {
	f.Helper()
	f.eventually("a goroutine waits for the clock", f.clock.HasWaiters)
	f.clock.Step(d)
}

// testCluster returns a cluster whose caches are filled by tests.
func testCluster(objects ...runtime.Object) *cluster {
	client := fake.NewClientset(objects...)
	still := func(example runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, example, 0, cache.Indexers{})
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &cluster{
		client: client, nodeName: "n", policies: still(&policyapi.DeviceExposurePolicy{}),
		topologies: still(&chainapi.NetworkTopology{}), blocks: still(&chainapi.AddressBlock{}),
		schemas: still(&chainapi.CNIPluginSchema{}), node: factory.Core().V1().Nodes().Informer(),
		namespaces: factory.Core().V1().Namespaces().Informer(), pods: factory.Core().V1().Pods().Informer(),
	}
	_ = c.topologies.GetStore().Add(testTopology())
	_ = c.node.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	return c
}

// newPublisher creates a publisher for the machine described by read or, if read is nil, for a machine that offers two
// links, up0 and up1.
func (f *fixture) newPublisher(read func(context.Context, []netip.Addr) (discovery.Facts, error)) *publish.Publisher {
	f.Helper()
	if read == nil {
		read = func(context.Context, []netip.Addr) (facts discovery.Facts, err error) {
			for _, name := range []discovery.IfName{"up0", "up1"} {
				facts.Devices = append(facts.Devices, discovery.Device{Name: name, Interface: name})
			}
			return facts, nil
		}
	}
	client := fake.NewClientset()
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: "v1.37.0"}
	client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, action.(clienttesting.CreateAction).GetObject(), nil // the API server keeps all fields
	})
	p, _, err := publish.New(publish.Config{
		NodeName: "n", BootID: f.bootID, Cluster: f.cluster, Claims: f.claims, Client: client, Read: read,
		CNIDirs: []string{f.pluginDir()}, Quarantined: func(discovery.Device) bool { return false },
		MayBeInPod:    mayBeInPod(f.claims, f.boxes, f.node),
		HealthChanged: func() {}, Recorder: record.NewFakeRecorder(100),
		Metrics: f.metrics.publish, FreeMemory: func() {}, Clock: f.clock,
		Heartbeats: telemetry.NewHeartbeats(f.clock),
	})
	f.must(err)
	return p
}

// offer replaces all policies with one that offers every device for exclusive use with the given plugin.
func (f *fixture) offer(plugin string) {
	f.Helper()
	f.must(f.cluster.policies.GetStore().Replace([]any{&policyapi.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: policyapi.DeviceExposurePolicySpec{
			Action: policyapi.ActionExpose, Selector: policyapi.DeviceSelector{CEL: "true"},
			Exposure: &policyapi.Exposure{SupportedCNIPlugins: []policyapi.CNIPlugin{{Name: plugin, Exclusive: true}}},
		},
	}}, ""))
	if f.dra != nil {
		f.must(f.dra.Publisher.Refresh(context.Background()))
	}
}

// allocatedClaim returns a claim for a link, allocated and reserved for a pod as the scheduler would write it.
func allocatedClaim(name, link, pod string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
			Annotations: map[string]string{resourceapi.PodResourceClaimAnnotation: "net"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID(pod), Controller: new(true),
			}}},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod,
				UID: types.UID(pod)}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: chainapi.DriverName,
					Pool: "n/" + link, Device: link}},
				Config: []resourceapi.DeviceAllocationConfiguration{{
					Source: resourceapi.AllocationConfigSourceClass, Requests: []string{"r"},
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: chainapi.DriverName,
						Parameters: runtime.RawExtension{Raw: []byte(
							`{"networkTopologyRef":{"name":"t"},"step":"link"}`,
						)},
					}},
				}},
			}},
		},
	}
}

func podObject(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	}
	return pod
}
