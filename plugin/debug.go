package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// policyInputs returns the policies and node labels that determine the devices of the node.
func (c *cluster) policyInputs() nodestate.PolicyInputs {
	inputs := nodestate.PolicyInputs{Node: c.nodeName, Policies: c.ExposurePolicies()}
	if node, err := c.ThisNode(); err == nil {
		inputs.Labels = node.Labels
	}
	return inputs
}

// serveDebug serves the discovered, decided, prepared and attached state and the leftovers as JSON on a Unix socket.
// Requests can retry or discard the rollback of leftovers and remove orphans; they cannot change anything else.
func (d *Driver) serveDebug(ctx context.Context) error {
	path := nodeapi.SocketPath(d.config.PluginDir)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // left by an earlier driver process
		return fmt.Errorf("cannot serve netdra: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot serve netdra: %w", err)
	}
	server := &http.Server{Handler: d.debugHandler(), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve netdra: %w", err)
	}
	return nil
}

func (d *Driver) debugHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, read := range map[string]func() any{
		"GET " + nodeapi.PathPolicies:  func() any { return d.cluster.policyInputs() },
		"GET " + nodeapi.PathPublished: func() any { return d.publisher.Offered() },
		"GET " + nodeapi.PathClaims:    func() any { return d.claimStates() },
		"GET " + nodeapi.PathSandboxes: func() any { return d.sandboxes.States() },
		"GET " + nodeapi.PathState:     func() any { return d.state() },
		"GET " + nodeapi.PathLeftovers: func() any { return d.dra.Executor.Leftovers() },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(read()) // an error means that the client has disconnected
		})
	}
	for pattern, do := range map[string]func(context.Context) ([]nodestate.Orphan, error){
		"GET " + nodeapi.PathOrphans:  func(context.Context) ([]nodestate.Orphan, error) { return d.findOrphans() },
		"POST " + nodeapi.PathOrphans: d.removeOrphans,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			found, err := do(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(found) // an error means that the client has disconnected
		})
	}
	mux.HandleFunc("POST "+nodeapi.PathLeftovers, func(w http.ResponseWriter, r *http.Request) {
		key := r.FormValue("key")
		if r.FormValue("forget") != "true" {
			if err := d.retryLeftover(r.Context(), key); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
			return
		}
		failure, err := d.forgetLeftover(r.Context(), key)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		} else if failure != nil {
			_, _ = fmt.Fprintln(w, failure) // an error means that the client has disconnected
		}
	})
	return mux
}

// retryToTheEnd completes a retry even if the driver is being stopped or the client disconnects: neither may interrupt
// a running plugin.
func (d *Driver) retryToTheEnd(ctx context.Context, key string, retry func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attach.DetachTimeout)
	defer cancel()
	result := make(chan error, 1)
	if !d.sandboxes.GoTracked(func() { result <- retry(ctx) }) {
		return attach.ShutdownError("retry leftover " + strconv.Quote(key))
	}
	return <-result
}

// retryLeftover retries the rollback of a leftover.
func (d *Driver) retryLeftover(ctx context.Context, key string) error {
	if err := d.checkLeftover(key); err != nil {
		return err
	}
	err := d.retryToTheEnd(ctx, key, func(ctx context.Context) error { return d.dra.Executor.Retry(ctx, key) })
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Cleaned up a leftover", "leftover", key)
	d.publisher.Trigger() // its device is free again
	return nil
}

// forgetLeftover is like retryLeftover, but also works if the rollback can never succeed; see
// [executor.Executor.Forget].
func (d *Driver) forgetLeftover(ctx context.Context, key string) (failure, err error) {
	if err := d.checkLeftover(key); err != nil {
		return nil, err
	}
	err = d.retryToTheEnd(ctx, key, func(ctx context.Context) (err error) {
		failure, err = d.dra.Executor.Forget(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if failure != nil {
		klog.FromContext(ctx).Info("Discarded a leftover on request; the plugin's changes stay on the node", "leftover",
			key, "reason", failure.Error())
	} else {
		klog.FromContext(ctx).Info("Cleaned up a leftover", "leftover", key)
	}
	d.publisher.Trigger() // its device is free again
	return failure, nil
}

// checkLeftover returns an error if there is no leftover with the key.
func (d *Driver) checkLeftover(key string) error {
	if slices.ContainsFunc(d.dra.Executor.Leftovers(), func(l executor.Leftover) bool { return l.Key == key }) {
		return nil
	}
	return fmt.Errorf("cannot retry leftover %q: it does not exist; \"netdra release\" lists those "+
		"that are left", key)
}
