package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// If another process is using the port, the error names the setting for choosing a different port.
func TestHealthOnAPortThatIsTaken(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	d := &Driver{config: Config{HTTPAddress: taken.Addr().String()}, components: components{Metrics: newMetrics("v1")}}
	if err := d.serveHTTP(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "set --http-address (node.httpAddress of the chart) to a free port") {
		t.Errorf("error = %v, want a hint at --http-address", err)
	}
}

// The liveness probe fails if a loop hangs or a lock is never released.
func TestHangingDriverIsNotHealthy(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	d.heartbeats = telemetry.NewHeartbeats(clock)
	var held sync.Mutex
	d.locks = &lockProbe{try: func() { held.Lock(); defer held.Unlock(); _ = f.boxes.Count() }}
	check := func(want string) {
		t.Helper()
		if got := strings.Join(d.hanging(t.Context()), "; "); got != want {
			t.Errorf("hanging = %q, want %q", got, want)
		}
	}
	check("")
	d.heartbeats.Beat("sweeps", time.Minute)
	clock.Step(time.Minute)
	check("")
	clock.Step(time.Second)
	check("sweeps: no progress for 1m1s")
	d.heartbeats.Beat("sweeps", time.Minute)
	check("")
	clock.Step(time.Hour)
	d.heartbeats.End("sweeps")
	check("")
	held.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d.locks.ok(ctx, time.Hour) {
		t.Error("the check acquired a lock that is held")
	}
	held.Unlock()
	f.eventually("the lock can be had", func() bool { return d.locks.ok(t.Context(), time.Minute) })
	check("")
}

// If one of the driver's sockets is removed, the driver is not ready and restarts.
func TestRemovedSockets(t *testing.T) {
	f := newFixture(t)
	d := f.driver()
	d.config.RegistrarDir = t.TempDir()
	paths := []string{filepath.Join(d.config.PluginDir, draSocket),
		filepath.Join(d.config.RegistrarDir, registrarSocket)}
	for _, path := range paths {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		f.must(err)
		defer func() { _ = listener.Close() }()
	}
	f.must(d.socketsAreThere())
	f.must(os.Remove(paths[1]))
	f.must(os.WriteFile(paths[1], nil, 0o600))
	if err := d.socketsAreThere(); err == nil || !strings.Contains(err.Error(), paths[1]+" is a different file") {
		t.Errorf("error = %v, want an error about another file", err)
	}
	f.must(os.Remove(paths[1]))
	missing := d.socketsAreThere()
	if missing == nil || !strings.Contains(missing.Error(), paths[1]) {
		t.Fatalf("error = %v, want an error about the missing socket", missing)
	}
	script := []error{nil, missing, nil, missing, missing} // a single failure is ignored
	ticks := make(chan time.Time, len(script))
	for range script {
		ticks <- time.Time{}
	}
	looks := 0
	err := watchSockets(t.Context(), ticks, func() error { looks++; return script[looks-1] })
	if err == nil || !strings.Contains(err.Error(), "the driver restarts to recreate its sockets") ||
		looks != len(script) {
		t.Errorf("after %d checks, error = %v", looks, err)
	}
}

// If the Node object is recreated, the slices need a new owner.
func TestReplacedNodeObject(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "first"}})
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	failures := make(chan error, 10)
	if err := (&cluster{node: informer}).onReplaced(func(err error) { failures <- err }); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not read the node")
	}
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Update(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "first", Labels: map[string]string{"a": "b"}}},
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "second"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-failures; !strings.Contains(err.Error(), "was deleted and created again") {
		t.Errorf("error = %v, want an error about the recreated node", err)
	}
}

// A probe returns the latest reason, and the log contains consecutive identical reasons only once.
func TestStartup(t *testing.T) {
	t.Parallel()
	s := newStartup()
	for _, c := range []struct {
		reason error
		isNews bool
	}{
		{errors.New("starting"), false}, {errors.New("locked"), true}, {errors.New("locked"), false}, {nil, true},
	} {
		if isNews := s.note(c.reason); isNews != c.isNews || fmt.Sprint(s.reason()) != fmt.Sprint(c.reason) {
			t.Errorf("%v: isNews = %v, want %v; the probe reports %v", c.reason, isNews, c.isNews, s.reason())
		}
	}
}
