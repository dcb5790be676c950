package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// On a node, policies from files are resolved with the same addresses, node name and labels that the driver would use.
// netdra prints where these come from.
func TestInputsOfThisNode(t *testing.T) {
	socket := answering(t, map[string]any{
		"/state":    map[string]any{"node": "worker-2", "addresses": []string{"10.2.0.1"}},
		"/policies": map[string]any{"node": "worker-2", "labels": map[string]string{"zone": "b"}},
	})
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
		"nobody": {[]string{"--socket", "/nowhere", "--node-labels", "zone=x"}, "x", "[]", "host-1/eth1",
			"the node's addresses are unknown"},
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
					t.Errorf("%v: exit status %d, got addresses %v\n%s%s", arguments, code, addresses, out.String(),
						errs.String())
				}
				if !strings.Contains(errs.String(), test.stderr) || test.stderr == "" && errs.Len() > 0 {
					t.Errorf("%v: got stderr %q, want %q", arguments, errs.String(), test.stderr)
				}
			}
		})
	}
}
