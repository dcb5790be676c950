package attach

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

const clean = "host [up0 up1] pods [] leases []"

// fixture provides Sandboxes without a kubelet, a runtime or an API server, on a test node with two exclusive links,
// up0 and up1. Every claim is attached by one chain: host-device, then tuning.
type fixture struct {
	*testing.T
	dir      string
	pinDir   string
	node     *cnitest.Node
	clock    *testingclock.FakeClock
	db       *journal.DB
	chains   *journal.Chains
	claims   *claims.Store
	boxes    *Sandboxes
	gate     Gate
	stopWork context.CancelFunc

	// runtime maps the IDs of the runtime's sandboxes to their network namespaces.
	runtime map[string]string
	bootID  string
	// podsGone contains the pods that no longer exist in the API server, by UID.
	podsGone map[string]bool

	mu     sync.Mutex
	failed []string
	stuck  []string // steps that could not be detached
	// unguarded lists the claims whose files were written at a time when their sandbox could have been detached;
	// described counts the writes.
	unguarded []string
	described int
	// writesFail causes file writes to fail.
	writesFail bool
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, dir: t.TempDir(), pinDir: "/run/netns", runtime: map[string]string{},
		podsGone: map[string]bool{}, node: cnitest.NewNode("up0", "up1"),
		clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	f.must(os.MkdirAll(f.pluginDir(), 0o755))
	for name := range testPlugins() {
		f.must(os.WriteFile(filepath.Join(f.pluginDir(), name), nil, 0o755))
	}
	f.start("boot-1")
	t.Cleanup(f.crash)
	return f
}

// start creates the Sandboxes from the journal and the runtime's list of sandboxes.
func (f *fixture) start(bootID string) {
	f.Helper()
	if f.bootID != bootID {
		clear(f.runtime)
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
	f.gate = Gate{dir: filepath.Join(f.dir, "cdi"), helper: "/plugins/bin/dra-network-cni"}
	f.must(os.MkdirAll(f.gate.dir, 0o755))
	f.boxes = New(f.config(work, runner))
	f.must(f.boxes.Recover(left))
	listed := map[string]string{}
	for id, netns := range f.runtime {
		if f.node.Exists(netns) {
			listed[id] = netns
		}
	}
	f.must(f.boxes.Confirm(listed))
}

func (f *fixture) config(work context.Context, runner *executor.Executor) Config {
	return Config{Work: work, Executor: runner, Claims: f.claims, Gate: f.gate, Clock: f.clock, Observer: f,
		Metrics: NewMetrics(prometheus.NewRegistry()), Node: "n", BootID: f.bootID, PinDir: f.pinDir}
}

// pluginDir returns a directory with files named after the plugins of the test node: the executor uses the file system
// to identify the binary that it has probed.
func (f *fixture) pluginDir() string { return filepath.Join(f.dir, "cni") }

// crash simulates a crash of the driver as closely as a test can: nothing is retried, and the journal is closed.
func (f *fixture) crash() {
	f.stopWork()
	f.boxes.FinishWork()
	f.must(f.db.Close())
}

// runs creates a sandbox with a network namespace in the runtime.
func (f *fixture) runs(id string) (netns string) {
	netns = "/var/run/netns/cni-" + id
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runtime[id] = netns
	f.node.AddNamespace(netns)
	return netns
}

// ends removes a sandbox from the runtime without notifying the driver.
func (f *fixture) ends(id string) {
	f.node.EndNamespace(f.runtime[id])
	delete(f.runtime, id)
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
func (f *fixture) DetachFailed(pod executor.Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = append(f.stuck, pod.Name+" "+err.Error())
}

// InterfacesChanged implements Observer.
func (f *fixture) InterfacesChanged(executor.Pod, []string, error) {}

// DescribeClaims implements Observer.
func (f *fixture) DescribeClaims(_ context.Context, records []claims.Record) (complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.described++
	for _, box := range f.boxes.list() {
		for i := range records {
			if uid := records[i].Claim.UID; box.view().uses(uid) && len(box.slot) == 0 {
				f.unguarded = append(f.unguarded, uid)
			}
		}
	}
	return !f.writesFail
}

// Attached implements Observer.
func (f *fixture) Attached([]claims.Record) {}

// AttachedLate implements Observer.
func (f *fixture) AttachedLate(executor.Pod, []claims.Record) {}

// sweeper returns the driver's sweeper.
func (f *fixture) sweeper() *Sweeper {
	return &Sweeper{Sandboxes: f.boxes, PodHasEnded: func(pod executor.Pod) bool { return f.podsGone[pod.UID] }}
}

// prepared records a pod's claim for up0 or up1 in the same way as Prepare.
func (f *fixture) prepared(claim, podUID, link string) claims.Record {
	f.Helper()
	device := cnichain.Device{Pool: "n/" + link, Name: link, Request: "r", Exclusive: true,
		CNIs: []string{"host-device"}, IfName: link}
	plan, problems := cnichain.Compile(testTopology(), cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: testPlugins(), Devices: []cnichain.RootDevice{{Step: "link", Device: device}},
	})
	if len(problems) > 0 {
		f.Fatal(problems)
	}
	made := claims.Record{
		Claim: plan.Claim, Consumers: []claims.Consumer{{PodUID: podUID}}, Plans: []cnichain.Plan{*plan},
		Devices: []claims.HeldDevice{{Request: "r", Pool: "n/" + link, Name: link, Exclusive: true,
			Facts: discovery.Device{Name: discovery.IfName(link)}}},
	}
	f.must(f.claims.Hold(made, asItIs))
	return made
}

// asItIs leaves a record unchanged.
func asItIs(*claims.Record) error { return nil }

func (f *fixture) attach(sandbox string, records ...claims.Record) error {
	return f.boxes.Attach(context.Background(), sandbox, podNamed(sandbox), f.runs(sandbox), records)
}

// podNamed returns the pod for a sandbox named "pod-attempt".
func podNamed(sandbox string) executor.Pod {
	name, _, _ := strings.Cut(sandbox, "-")
	return executor.Pod{Namespace: "ns", Name: name, UID: name}
}

// attempts matches the names of pins; the suffix after the dot identifies the attempt, which tests ignore.
var attempts = regexp.MustCompile(`(dra-[a-z0-9-]+)\.[0-9a-z]+`)

// expect checks the state of the node and the set of claims whose gates are open.
func (f *fixture) expect(node string, gates ...string) {
	f.Helper()
	if got := attempts.ReplaceAllString(f.node.String(), "$1"); got != node {
		f.Errorf("node = %s\nwant   %s", got, node)
	}
	entries, err := os.ReadDir(f.gate.dir)
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

// admits returns the sandboxes where a claim's containers may start, according to the file that the OCI hook reads.
func (f *fixture) admits(claim string) string {
	f.Helper()
	pins, err := f.gate.Namespaces(claim)
	f.must(err)
	for i, pin := range pins {
		pins[i] = attempts.ReplaceAllString(filepath.Base(pin), "$1")
	}
	return strings.Join(pins, " ")
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
	box := f.boxes.find(id)
	if box == nil {
		return false
	}
	select {
	case <-box.answer:
		return !box.view().phase.isEnding()
	default:
		return false
	}
}

// step advances the clock once a goroutine is waiting for it.
func (f *fixture) step(d time.Duration) {
	f.Helper()
	f.eventually("a goroutine waits for the clock", f.clock.HasWaiters)
	f.clock.Step(d)
}

// slow starts a chain that blocks in its second step, and returns once RunPodSandbox has stopped waiting.
func (f *fixture) slow(record claims.Record) (release func()) {
	f.Helper()
	release = f.node.Hold("tuning ADD")
	f.Cleanup(release)
	answer := make(chan error, 1)
	go func() { answer <- f.attach("a-0", record) }()
	f.eventually("the second step runs",
		func() bool { return strings.Contains(strings.Join(f.node.Calls(), ","), "tuning ADD") })
	f.step(Budget)
	f.must(<-answer)
	return release
}

func testPlugins() map[string]cnichain.Plugin {
	plugins := map[string]cnichain.Plugin{}
	for _, name := range []string{"host-device", "tuning", "host-local"} {
		plugins[name] = cnichain.Plugin{Path: cnitest.PluginDir + "/" + name, Versions: []string{"1.1.0"}}
	}
	return plugins
}

func testTopology() *chainapi.NetworkTopology {
	topology := &chainapi.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	if err := yaml.UnmarshalStrict([]byte(`
- {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`), &topology.Spec.Steps); err != nil {
		panic(err)
	}
	return topology
}
