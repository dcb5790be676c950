package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// lockProbe checks whether the locks that are needed to start any pod can still be acquired. It is safe for concurrent
// use.
type lockProbe struct {
	try      func()
	attempts singleflight.Group
}

// ok reports whether the locks can be acquired within limit. If an earlier attempt is still blocked, ok waits for it
// instead of starting another one.
func (p *lockProbe) ok(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-p.attempts.DoChan("locks", func() (any, error) { p.try(); return nil, nil }):
		return true
	case <-ctx.Done():
		return false
	}
}

// lockLimit is how long a healthy driver may take to acquire its locks, which are never held during I/O.
const lockLimit = 2 * time.Second

// hanging returns the parts of the driver that are not making progress. If there are any, the liveness probe fails and
// the kubelet restarts the driver.
func (d *Driver) hanging(ctx context.Context) []string {
	hanging := d.heartbeats.Overdue()
	if d.startup.reason() == nil && !d.locks.ok(ctx, lockLimit) {
		hanging = append(hanging, "locks are not released")
	}
	return hanging
}

// serveHTTP serves the metrics and the probes: /healthz succeeds unless the process hangs, and /readyz succeeds if pods
// with claims can start.
func (d *Driver) serveHTTP(ctx context.Context) error {
	if d.config.HTTPAddress == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if hanging := d.hanging(r.Context()); len(hanging) > 0 {
			http.Error(w, "hanging: "+strings.Join(hanging, ", "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("GET /metrics", d.Metrics.handler())
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := d.missing(); len(missing) > 0 {
			http.Error(w, "not ready: "+strings.Join(missing, ", "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.config.HTTPAddress)
	if err != nil {
		return fmt.Errorf("cannot serve health: %w; set --http-address (node.httpAddress of the chart) to a free "+
			"port of the node", err)
	}
	return serve(ctx, "health", listener, mux)
}

func (d *Driver) missing() []string {
	if reason := d.startup.reason(); reason != nil {
		return []string{reason.Error()}
	}
	d.mu.Lock()
	registered := d.registered
	d.mu.Unlock()
	var missing []string
	if !d.nri.runtime.isConnected() {
		missing = append(missing, "not connected to the container runtime (NRI)")
	}
	if !registered() {
		missing = append(missing, "not registered with kubelet")
	} else if err := d.socketsAreThere(); err != nil {
		missing = append(missing, err.Error())
	}
	if err := d.Publisher.Readiness(); err != nil {
		missing = append(missing, err.Error())
	}
	return append(missing, d.installed.defects.texts()...)
}

// These are the names of the driver's sockets for the kubelet (the kubeletplugin library's defaults).
const (
	draSocket       = "dra.sock"
	registrarSocket = v1alpha1.DriverName + "-reg.sock"
)

const socketPeriod = 10 * time.Second

// socketsAreThere returns an error if one of the driver's sockets has been removed. Without the registration socket,
// the kubelet forgets the plugin; without the other socket, it cannot reach the plugin.
func (d *Driver) socketsAreThere() error {
	for _, path := range []string{filepath.Join(d.config.PluginDir, draSocket),
		filepath.Join(d.config.RegistrarDir, registrarSocket)} {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&os.ModeSocket == 0 {
			err = fmt.Errorf("%s is a different file", path)
		}
		if err != nil {
			return fmt.Errorf("a socket of the driver is missing: %w", err)
		}
	}
	return nil
}

// watchSockets returns an error if sockets are missing in two consecutive checks: only a new process can recreate them.
// A single failed check may be transient, for example while the directory is being replaced, and a restart would fail
// the current attempt of every pod that is starting.
func watchSockets(ctx context.Context, again <-chan time.Time, check func() error) error {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		}
		err := check()
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures > 1 {
			return fmt.Errorf("cannot keep the registration with kubelet: %w; the driver restarts to recreate its "+
				"sockets; if this recurs, find the process that deletes them", err)
		}
	}
}

// startup records why the driver has not finished starting. It is safe for concurrent use.
type startup struct {
	waiting atomic.Pointer[error] // points to nil once startup is complete
}

func newStartup() *startup {
	s := &startup{}
	starting := errors.New("starting")
	s.waiting.Store(&starting)
	return s
}

// reason returns why the driver is not ready yet, or nil once startup is complete.
func (s *startup) reason() error { return *s.waiting.Load() }

func (s *startup) complete() { s.note(nil) }

// note sets the reason and reports whether its text differs from the text of the previous reason.
func (s *startup) note(reason error) (isNews bool) {
	return fmt.Sprint(*s.waiting.Swap(&reason)) != fmt.Sprint(reason)
}

// await calls try until it succeeds. Until then, reason returns the latest error from try. await logs consecutive
// identical errors only once.
func (s *startup) await(ctx context.Context, again <-chan time.Time, message string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if s.note(err) {
			klog.FromContext(ctx).Error(err, message, "again", journalRetry)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
		}
	}
}
