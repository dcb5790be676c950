package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// serveHTTP answers probes: /healthz while the process works, /readyz when pods with claims can start.
func (d *Driver) serveHTTP(ctx context.Context) error {
	if d.config.HTTPAddress == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.Handle("GET /metrics", d.metrics.handler())
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := d.missing(); len(missing) > 0 {
			http.Error(w, "not ready: "+strings.Join(missing, ", "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.config.HTTPAddress)
	if err != nil {
		return fmt.Errorf("cannot serve health: %w; set --http-address (node.httpAddress of the chart) to a free port of the node", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve health: %w", err)
	}
	return nil
}

// missing says what keeps pods with claims from starting.
func (d *Driver) missing() []string {
	d.mu.Lock()
	registered, waiting := d.registered, d.waiting
	d.mu.Unlock()
	if waiting != nil {
		return []string{waiting.Error()}
	}
	var missing []string
	if !d.nri.connected() {
		missing = append(missing, "not connected to the container runtime (NRI)")
	}
	if !registered() {
		missing = append(missing, "not registered with kubelet")
	}
	if err := d.publisher.unknown(); err != nil {
		missing = append(missing, err.Error())
	}
	return missing
}
