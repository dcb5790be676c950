package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// pollInterval is the interval at which readiness is polled.
const pollInterval = 20 * time.Millisecond

// Stop sends sig, for example SIGKILL, to a component and waits until it has exited. The component is not restarted
// automatically. Stop returns an error if the component is not running, or has not exited after two minutes. After
// SIGTERM, the API server may take a minute to exit, because it first completes pending requests.
func (m *Machine) Stop(ctx context.Context, component Component, sig syscall.Signal) error {
	_, err := node.Call(ctx, m.state.RunDir, node.Request{Op: node.OpStop, Name: string(component), Signal: sig})
	return m.explain("stop", component, err)
}

// Start starts a stopped component with its previous command line and waits until it is healthy. It returns an error if
// the component is already running, or was never started.
func (m *Machine) Start(ctx context.Context, component Component) error {
	_, err := node.Call(ctx, m.state.RunDir, node.Request{Op: node.OpStart, Name: string(component)})
	if err != nil {
		return m.explain("start", component, err)
	}
	return m.WaitHealthy(ctx, component)
}

// Restart stops a component with sig, starts it again and waits until it is healthy. Pods keep running, since their
// processes are children of containerd's shims, which run independently of containerd.
func (m *Machine) Restart(ctx context.Context, component Component, sig syscall.Signal) error {
	if err := m.Stop(ctx, component, sig); err != nil {
		return err
	}
	return m.Start(ctx, component)
}

func (m *Machine) explain(verb string, component Component, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot %s %s in %s: %w", verb, component, m, err)
}

// launch starts a component for the first time.
func (m *Machine) launch(ctx context.Context, component Component) error {
	argv, err := commandLine(component, m.opts, m.state.Binaries)
	if err != nil {
		return err
	}
	_, err = node.Call(ctx, m.state.RunDir, node.Request{Op: node.OpStart, Name: string(component), Argv: argv})
	return m.explain("start", component, err)
}

// WaitHealthy waits until a component reports that it is healthy. Only the context limits the time. If the component
// exits, WaitHealthy immediately returns an error that includes the end of the component's log.
func (m *Machine) WaitHealthy(ctx context.Context, component Component) error {
	return m.waitFor(ctx, string(component), component, func(ctx context.Context) error {
		if component == m.RuntimeComponent() {
			socket, err := m.NodePath(m.opts.runtimeSocket())
			if err != nil {
				return err
			}
			return node.AskRuntime(ctx, socket)
		}
		_, err := m.get(ctx, component.health())
		return err
	})
}

// errEnded ends the wait for a component that can no longer become ready.
var errEnded = errors.New("has ended")

// waitFor calls try until it succeeds, or until component has exited and waiting any longer is pointless. what
// describes the awaited state in errors, which also include the end of the component's log. If Status fails, the
// component has not necessarily exited: process 1 may be busy, so the next attempt queries it again.
func (m *Machine) waitFor(
	ctx context.Context, what string, component Component, try func(context.Context) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := poll(ctx, pollInterval, func(ctx context.Context) error {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if all, serr := m.Status(ctx); serr == nil && !all[component].Running {
			cancel(errEnded)
			return fmt.Errorf("%s %w (%s)", component, errEnded, all[component].Result)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w (%w)\n%s", what, err, context.Cause(ctx), tail(m.Logs(component), 15))
	}
	return nil
}

// get requests a URL from one of the cluster's HTTP servers as the administrator. It does not reuse connections,
// because the server may have been killed and restarted.
func (m *Machine) get(ctx context.Context, address string) ([]byte, error) {
	client, err := m.httpClient()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // used only for reading
	return readOK(resp)
}

// httpClient does not verify server certificates: the scheduler and the controller manager generate their own
// certificates, and the network namespace contains no foreign processes.
func (m *Machine) httpClient() (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(m.opts.pki("admin.crt"), m.opts.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DialContext:     m.DialContext,
			TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}, //nolint:gosec // see above
		},
	}, nil
}

// noProxy makes requests to the cluster bypass the machine's proxy.
func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// tail returns the last lines of a log file for use in an error message.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return fmt.Sprintf("--- end of %s\n%s", path, strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// poll calls try until it succeeds or the context is done; in the latter case, it returns the last error from try. It
// calls try at least once, even if the context is already done, and never concurrently.
func poll(ctx context.Context, every time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		last := try(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}
