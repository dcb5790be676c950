package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// nodeObject serves a Node object, and returns a kubeconfig for it.
func nodeObject(t *testing.T, name string) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/"+name {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": %q, "labels": {"zone": "c"}},
			"status": {"addresses": [{"type": "Hostname", "address": %q}, {"type": "InternalIP", "address": "10.3.0.1"}]}}`, name, name)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "config")
	content := `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "` +
		server.URL + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// On a node, policies from files are resolved with the addresses, name and labels that the driver would use. netdra
// prints their source.
func TestInputsOfThisNode(t *testing.T) {
	socket := answering(t, map[string]any{
		"/state":    map[string]any{"node": "worker-2", "addresses": []string{"10.2.0.1"}},
		"/policies": map[string]any{"node": "worker-2", "labels": map[string]string{"zone": "b"}},
	})
	kubeconfig := nodeObject(t, "host-1")
	const policies = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: zone}
spec:
  nodeSelector: {matchLabels: {zone: ZONE}}
  selector: {cel: 'true'}
  exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}`
	for name, test := range map[string]struct {
		arguments []string
		zone      string
		addresses string
		pool      string
		stderr    string
	}{
		"driver": {[]string{"--socket", socket}, "b", "[10.2.0.1]", "worker-2/eth1",
			"node worker-2, addresses [10.2.0.1]: from the driver"},
		"flag": {[]string{"--socket", socket, "--node-address", "10.9.0.1", "--node-labels", "zone=x"}, "x",
			"[10.9.0.1]", "host-1/eth1", ""},
		"labels": {[]string{"--socket", socket, "--node-labels", "zone=x"}, "x", "[10.2.0.1]", "worker-2/eth1",
			"from the driver"},
		"cluster": {[]string{"--socket", "/nowhere", "--kubeconfig", kubeconfig}, "c", "[10.3.0.1]", "host-1/eth1",
			"from the cluster"},
		"nobody": {[]string{"--socket", "/nowhere", "--node-labels", "zone=x"}, "x", "[]", "host-1/eth1",
			"the node's addresses are unknown"},
		"driver wins": {[]string{"--socket", socket, "--kubeconfig", kubeconfig}, "b", "[10.2.0.1]", "worker-2/eth1",
			"from the driver"},
	} {
		t.Run(name, func(t *testing.T) {
			var addresses []netip.Addr
			deps := osdeps.Deps{
				Hostname: func() (string, error) { return "Host-1", nil },
				Facts: func(_ context.Context, given []netip.Addr) (discovery.Facts, error) {
					addresses = given
					return discovery.Facts{Devices: []discovery.Device{{Name: "eth1", Interface: "eth1",
						Type:     discovery.TypeNIC,
						NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None}}}, nil
				},
			}
			for _, command := range [][]string{{"explain", "eth1"}, {"slices", "-o", "text"}} {
				var out, errs bytes.Buffer
				file := policyFile(t, strings.ReplaceAll(policies, "ZONE", test.zone))
				arguments := append(append(command, "-f", file), test.arguments...)
				code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, arguments...)
				if code != exit.OK || fmt.Sprint(addresses) != test.addresses ||
					!strings.Contains(out.String(), test.pool) {
					t.Errorf("%v: exit status %d, addresses %v\n%s%s", arguments, code, addresses, out.String(),
						errs.String())
				}
				if !strings.Contains(errs.String(), test.stderr) || test.stderr == "" && errs.Len() > 0 {
					t.Errorf("%v: stderr is %q, want %q", arguments, errs.String(), test.stderr)
				}
			}
		})
	}
}
