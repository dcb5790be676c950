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

func (c *cluster) policyInputs() nodestate.PolicyInputs {
	inputs := nodestate.PolicyInputs{Node: c.nodeName, Policies: c.ExposurePolicies()}
	if node, err := c.ThisNode(); err == nil {
		inputs.Labels = node.Labels
	}
	return inputs
}

// serveDebug serves the state of the driver (discovery, decisions, claims, attachments and leftovers) as JSON on a Unix
// socket. Requests can retry or discard leftovers and remove orphans; they cannot change anything else.
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
	return serve(ctx, "netdra", listener, d.debugHandler())
}

func serve(ctx context.Context, what string, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve %s: %w", what, err)
	}
	return nil
}

func (d *Driver) debugHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(context.Context) (any, error){
		"GET " + nodeapi.PathPolicies:  func(context.Context) (any, error) { return d.Cluster.policyInputs(), nil },
		"GET " + nodeapi.PathPublished: func(context.Context) (any, error) { return d.Publisher.Offered(), nil },
		"GET " + nodeapi.PathClaims:    func(context.Context) (any, error) { return d.claimStates(), nil },
		"GET " + nodeapi.PathSandboxes: func(context.Context) (any, error) { return d.Sandboxes.States(), nil },
		"GET " + nodeapi.PathState:     func(context.Context) (any, error) { return d.state(), nil },
		"GET " + nodeapi.PathLeftovers: func(context.Context) (any, error) { return d.Executor.Leftovers(), nil },
		"GET " + nodeapi.PathOrphans:   func(context.Context) (any, error) { return d.findOrphans() },
		"POST " + nodeapi.PathOrphans:  func(ctx context.Context) (any, error) { return d.removeOrphans(ctx) },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			found, err := answer(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(found) // an error means that the client has disconnected
		})
	}
	mux.HandleFunc("POST "+nodeapi.PathLeftovers, func(w http.ResponseWriter, r *http.Request) {
		failure, err := d.retryLeftover(r.Context(), r.FormValue("key"), r.FormValue("forget") == "true")
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		} else if failure != nil {
			_, _ = fmt.Fprintln(w, failure) // an error means that the client has disconnected
		}
	})
	return mux
}

// retryLeftover retries the rollback of a leftover. If forget is true, it discards a leftover whose rollback fails, and
// returns the failure; see [executor.Executor.Forget]. It completes the retry even if the driver is shutting down or
// the client disconnects, since a running plugin must not be interrupted.
func (d *Driver) retryLeftover(ctx context.Context, key string, forget bool) (failure, err error) {
	if !slices.ContainsFunc(d.Executor.Leftovers(), func(l executor.Leftover) bool { return l.Key == key }) {
		return nil, fmt.Errorf("cannot retry leftover %q: it does not exist; \"netdra release\" lists the "+
			"remaining ones", key)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), attach.DetachTimeout)
	defer cancel()
	err = d.Sandboxes.RunToTheEnd("retry leftover "+strconv.Quote(key), func() (err error) {
		if !forget {
			return d.Executor.Retry(limited, key)
		}
		failure, err = d.Executor.Forget(limited, key)
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
	d.Publisher.Trigger() // its device is free again
	return failure, nil
}
