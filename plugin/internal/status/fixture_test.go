package status

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// fixture provides Sandboxes on a test node with two exclusive links, up0 and up1, and a Writer for the status of their
// claims. Its observer methods do nothing.
type fixture struct {
	*testing.T
	node   *cnitest.Node
	clock  *testingclock.FakeClock
	claims *claims.Store
	boxes  *attach.Sandboxes
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, node: cnitest.NewNode("up0", "up1"), clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	dir := t.TempDir()
	for _, name := range []string{"host-device", "tuning", "host-local"} {
		f.must(os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	opened, err := journal.Open(filepath.Join(dir, "journal.db"), testingclock.NewFakeClock(f.clock.Now()))
	f.must(err)
	f.claims, _, err = claims.Load(opened.DB)
	f.must(err)
	chains, err := journal.NewChains(opened.DB)
	f.must(err)
	runner := executor.New(executor.Options{Exec: f.node, Host: f.node, Journal: chains, Dirs: []string{dir},
		Clock: f.clock})
	cdi := filepath.Join(dir, "cdi")
	f.must(os.Mkdir(cdi, 0o755))
	work, stop := context.WithCancel(context.Background())
	f.boxes = attach.New(attach.Config{Work: work, Executor: runner, Claims: f.claims,
		Gate: attach.NewGate(cdi, "/plugins/bin/dra-network-cni"), Clock: f.clock, Observer: f,
		Metrics: attach.NewMetrics(prometheus.NewRegistry()), Node: "n", BootID: "boot", PinDir: "/run/netns"})
	f.must(f.boxes.Recover(nil))
	f.must(f.boxes.Confirm(nil))
	t.Cleanup(func() {
		stop()
		f.boxes.FinishWork()
		f.must(opened.Close())
	})
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// DescribeClaims implements attach.Observer.
func (f *fixture) DescribeClaims(context.Context, []claims.Record) bool { return true }

// Attached implements attach.Observer.
func (f *fixture) Attached([]claims.Record) {}

// AttachedLate implements attach.Observer.
func (f *fixture) AttachedLate(executor.Pod, []claims.Record) {}

// DetachFailed implements attach.Observer.
func (f *fixture) DetachFailed(executor.Pod, error) {}

// AttachFailed implements attach.Observer.
func (f *fixture) AttachFailed(executor.Pod, []claims.Record, error, time.Duration) {}

// InterfacesChanged implements attach.Observer.
func (f *fixture) InterfacesChanged(executor.Pod, []string, error) {}

// prepared records a pod's claim for up0 or up1 in the same way as Prepare.
func (f *fixture) prepared(claim, podUID, link string) claims.Record {
	f.Helper()
	topology := &chainapi.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	f.must(yaml.UnmarshalStrict([]byte(`
- {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`), &topology.Spec.Steps))
	plugins := map[string]cnichain.Plugin{}
	for _, name := range []string{"host-device", "tuning", "host-local"} {
		plugins[name] = cnichain.Plugin{Path: cnitest.PluginDir + "/" + name, Versions: []string{"1.1.0"}}
	}
	device := cnichain.Device{Pool: "n/" + link, Name: link, Request: "r", Exclusive: true,
		CNIs: []string{"host-device"}, IfName: link}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: []cnichain.RootDevice{{Step: "link", Device: device}},
	})
	if len(problems) > 0 {
		f.Fatal(problems)
	}
	made := claims.Record{
		Claim: plan.Claim, Consumers: []claims.Consumer{{PodUID: podUID}}, Plans: []cnichain.Plan{*plan},
		Devices: []claims.HeldDevice{{Request: "r", Pool: "n/" + link, Name: link, Exclusive: true,
			Facts: discovery.Device{Name: discovery.IfName(link)}}},
	}
	f.must(f.claims.Hold(made, func(*claims.Record) error { return nil }))
	return made
}

// attach attaches a sandbox named "pod-attempt".
func (f *fixture) attach(sandbox string, records ...claims.Record) error {
	name, _, _ := strings.Cut(sandbox, "-")
	netns := "/var/run/netns/cni-" + sandbox
	f.node.AddNamespace(netns)
	return f.boxes.Attach(context.Background(), sandbox, executor.Pod{Namespace: "ns", Name: name, UID: name}, netns,
		records)
}

// storedClaim returns a claim as stored by the API server.
func storedClaim(name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
}

// sweep inspects the sandboxes, which the driver does periodically.
func (f *fixture) sweep() {
	f.must((&attach.Sweeper{Sandboxes: f.boxes, PodHasEnded: func(executor.Pod) bool { return false }}).Sweep())
}
