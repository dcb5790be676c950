package plugin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// driver returns a Driver with only the fields that it needs to serve its debug socket.
func (f *fixture) driver() *Driver {
	return &Driver{
		config: Config{NodeName: "n", PluginDir: f.dir, CNIDirs: []string{f.pluginDir()}, CDIDir: f.cdiDir(),
			NetNSDir: f.pinDir},
		components: f.dra.components, dra: f.dra, nri: f.nri,
		registered: func() bool { return false }, startup: readyStartup(),
	}
}

// readyStartup returns the startup state of a driver that has finished starting.
func readyStartup() *startup {
	s := newStartup()
	s.complete()
	return s
}

// debug sends a request to the debug socket in the same way as netdra.
func (f *fixture) debug(method, path string) (code int, body string) {
	return request(f.driver(), method, path)
}

func request(d *Driver, method, path string) (code int, body string) {
	response := httptest.NewRecorder()
	d.debugHandler().ServeHTTP(response, httptest.NewRequest(method, path, nil))
	return response.Code, response.Body.String()
}

func TestDebugShowsWhatThereIs(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	for path, want := range map[string]string{
		"/policies": `{"node":"n","labels":`, "/published": `"Name":"up1"`, "/claims": `"claim-a"`,
		"/sandboxes": `"state":"attaching"`, "/leftovers": "[]",
		"/state": `"notReady":["not registered with kubelet"]`,
	} {
		if code, body := f.debug(http.MethodGet, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %q is missing from %s", path, code, want, body)
		}
	}
	release()
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	if _, body := f.debug(http.MethodGet, "/sandboxes"); !strings.Contains(body, `"state":"ready"`) ||
		!strings.Contains(body, `"claims":["claim-a"]`) {
		t.Errorf("wrong sandboxes: %s", body)
	}
	if _, body := f.debug(http.MethodGet, "/sandboxes"); !strings.Contains(body,
		`"interfaces":[{"claimUID":"claim-a","pool":"n/up0","device":"up0","interface":"net1"`) {
		t.Errorf("the interface is missing from %s", body)
	}
	for method, path := range map[string]string{http.MethodGet: "/secrets", http.MethodDelete: "/claims",
		http.MethodPost: "/claims"} {
		if code, _ := f.debug(method, path); code < 400 {
			t.Errorf("%s %s: got status %d, want an error", method, path, code)
		}
	}
}

// A rejected claim stays listed until the pod that is waiting for it no longer exists, or until another claim with the
// same name is prepared or rejected.
func TestRefusedClaimsAreTold(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	refuse := func(name, uid string) {
		f.dra.Statuses.Failed(cnichain.Claim{Namespace: "ns", Name: name, UID: uid}, nil, status.ReasonPrepare,
			errors.New("refused as "+uid))
		f.clock.Step(time.Second)
	}
	told := func() (uids []string) {
		for _, refused := range d.refusedClaims() {
			uids = append(uids, refused.Claim.UID+" of "+strings.Join(refused.Pods, " "))
		}
		return uids
	}
	refuse("c", "first")
	refuse("gone", "other")
	if uids := told(); uids != nil {
		t.Errorf("without pods: got reports for %q, want none", uids)
	}
	f.must(f.dra.Cluster.pods.GetStore().Add(podObject("a", "c")))
	refuse("c", "second")
	if diff := cmp.Diff([]string{"second of ns/a"}, told()); diff != "" {
		t.Errorf("wrong reports (-want +got):\n%s", diff)
	}
	f.prepared("c", "a", "up0")
	if uids := told(); uids != nil {
		t.Errorf("after Prepare: got reports for %q, want none", uids)
	}
}

// The driver reports which CNI plugins it finds, because its pod may contain different plugins than the node.
func TestDebugSaysWhichPluginsThereAre(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	d.config.CNIDirs = []string{t.TempDir(), filepath.Join(f.dir, "nowhere")}
	for name, mode := range map[string]os.FileMode{"mine": 0o755, "notes": 0o644} {
		f.must(os.WriteFile(filepath.Join(d.config.CNIDirs[0], name), nil, mode))
	}
	f.must(os.Symlink("/nowhere", filepath.Join(d.config.CNIDirs[0], "dangling")))
	if _, body := request(d, http.MethodGet, "/state"); !strings.Contains(body, `"cniPlugins":["mine"]`) {
		t.Errorf("the state does not list the plugin: %s", body)
	}
}

// Only root can connect, the socket of a killed driver is replaced, and the driver removes the socket when it exits.
func TestDebugSocket(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	path := nodeapi.SocketPath(f.dir)
	f.must(os.WriteFile(path, nil, 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.serveDebug(ctx) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
	f.eventually("the driver answers", func() bool {
		response, err := client.Get("http://driver/claims")
		if err != nil {
			return false
		}
		f.must(response.Body.Close())
		return response.StatusCode == http.StatusOK
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, error %v, want mode 0600", info.Mode(), err)
	}
	cancel()
	f.must(<-ended)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists, Stat error: %v", err)
	}
}

// The state contains the input for netdra doctor: versions, topologies in the API server, problems, and the runtime's
// plugins.
func TestStateOfTheNode(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	f.nri.runtime.setTimeout(3 * time.Second)
	f.must(f.dra.Cluster.node.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.37.1", ContainerRuntimeVersion: "containerd://2.4.2", KernelVersion: "6.1",
		}}}))
	accepted := metav1.Condition{Type: chainapi.ConditionAccepted, Status: metav1.ConditionFalse, Message: "no"}
	topology := testTopology()
	topology.Name, topology.Status.Conditions = "t2", []metav1.Condition{accepted}
	topology.Spec.Steps[0].Driver = "vfio-pci"
	f.must(f.dra.Cluster.topologies.GetStore().Add(topology))
	f.offer("missing")
	f.must(f.dra.Cluster.schemas.GetStore().Add(&chainapi.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "vendor"},
		Spec: chainapi.CNIPluginSchemaSpec{CNIType: "vendor", HostPaths: []string{"/etc/vendor"},
			LinkTypes: []string{"vendorlink"}}}))

	got := d.state()
	if diff := cmp.Diff(nodestate.Versions{Kubelet: "v1.37.1", Runtime: "containerd://2.4.2", Kernel: "6.1"},
		got.Versions); diff != "" || !got.NodeFound {
		t.Errorf("wrong versions (-want +got):\n%s", diff)
	}
	if len(got.Problems) != 1 || got.Problems[0].Source != "slices" || got.Problems[0].Policy != "all" ||
		!strings.Contains(got.Problems[0].Text, "CNI plugin missing is not installed") {
		t.Errorf("wrong problems: %+v", got.Problems)
	}
	if !got.Synced {
		t.Error("the state is not marked as synced")
	}
	if f.dra.Cluster.informers = append(f.dra.Cluster.informers, f.dra.Cluster.topologies); d.state().Synced {
		t.Error("the state is marked as synced before the topologies were read")
	}
	if paths := got.HostPaths; !slices.Equal(paths["vendor"], []string{"/etc/vendor"}) ||
		len(paths["whereabouts"]) == 0 {
		t.Errorf("wrong host paths of plugins: %v", paths)
	}
	if types := got.LinkTypes; !slices.Equal(types["vendor"], []string{"vendorlink"}) ||
		!slices.Equal(types["vlan"], []string{"vlan"}) {
		t.Errorf("wrong link types of plugins: %v", types)
	}
	if got.NRITimeout != 3*time.Second {
		t.Errorf("NRI timeout = %s, want 3s", got.NRITimeout)
	}
	want := nodestate.Topology{Name: "t2", Conditions: []metav1.Condition{accepted}, Plugins: cnichain.Types(topology),
		Drivers: []string{"vfio-pci"}}
	if diff := cmp.Diff(want, got.Topologies[len(got.Topologies)-1]); diff != "" {
		t.Errorf("wrong topology (-want +got):\n%s", diff)
	}
}

// A claim is orphaned if the node has neither a pod nor a sandbox that uses it.
func TestForsakenClaims(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	record := f.prepared("claim-a", "a", "up0")
	orphaned := func() bool { return d.claimStates()[0].Unused }
	if orphaned() {
		t.Error("the claim is marked as unused before the pods are synced")
	}
	f.cluster.pods = syncedInformer{f.cluster.pods}
	f.must(f.cluster.pods.GetStore().Add(podObject("a")))
	if orphaned() {
		t.Error("the claim is marked as unused although its pod exists")
	}
	f.must(f.cluster.pods.GetStore().Replace([]any{podObject("b")}, ""))
	if !orphaned() {
		t.Error("the claim is not marked as unused although its pod is gone")
	}
	f.must(f.attach("a-0", record))
	if orphaned() {
		t.Error("the claim is marked as unused although a sandbox uses it")
	}
}
