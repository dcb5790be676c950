package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// A report based on files is complete, has mode 0600, and is reproducible except for the time.
func TestReportOfFiles(t *testing.T) {
	dir := t.TempDir()
	recording, file := filepath.Join(dir, "worker-1"), filepath.Join(dir, "report.html")
	if err := discoverytest.ReferenceNode().Write(recording); err != nil {
		t.Fatal(err)
	}
	policies := filepath.Join("..", "..", "slices", "testdata", "reference-node.yaml")
	code, _, stderr := runNetdra(t, "", "report", "-f", policies, "--from", recording, "--file", file)
	if code != exit.OK || !strings.Contains(stderr, "written to "+file) {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file mode is %v, want 0600; error = %v", info.Mode(), err)
	}
	code, stdout, stderr := runNetdra(t, "", "report", "-f", policies, "--from", recording)
	hour := regexp.MustCompile(`[0-9:]{8} UTC`)
	if diff := cmp.Diff(hour.ReplaceAllString(string(written), ""), hour.ReplaceAllString(stdout, "")); diff != "" ||
		code != exit.OK {
		t.Errorf("exit status %d: %s (-file +standard output):\n%s", code, stderr, diff)
	}
	for _, want := range []string{"<h1>worker-1</h1>", "enp3s0f1v3", "exclude-management: excludes",
		"the driver was not queried"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestReportRefuses(t *testing.T) {
	file := policyFile(t, somePolicies)
	for want, arguments := range map[string][]string{
		"does not answer":                         {"--socket", "/nowhere/netdra.sock"},
		"pass a file with -f":                     {"--from", "."},
		"cannot use --kubeconfig with --filename": {"-f", file, "--kubeconfig", file},
		"cannot write /nowhere/report.html: no such file": {"-f", file, "--from", recordedFunctions(t), "--file",
			"/nowhere/report.html"},
		"cannot write /dev/null: it exists and": {"-f", file, "--from", recordedFunctions(t), "--file", "/dev/null"},
	} {
		if code, stdout, stderr := runNetdra(t, "",
			append([]string{"report"}, arguments...)...); code != exit.Refused || !strings.Contains(stderr, want) ||
			stdout != "" {
			t.Errorf("%v: exit status %d, want %q: %s", arguments, code, want, stderr)
		}
	}
}

// nodeAtWork returns a machine with two links, one of them in a pod, and the socket of the machine's driver.
func nodeAtWork(t *testing.T) (deps osdeps.Deps, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"/policies": `{"node": "worker-1", "policies": [{"metadata": {"name": "whole"}, "spec": {"priority": 1, "action": "expose",
			"selector": {"cel": "true"}, "exposure": {"supportedCNIPlugins": [{"name": "host-device", "exclusive": true}]}}}]}`,
		"/published": `[{"Pool": "worker-1/eth0", "Name": "eth0", "Device": {"name": "eth0", "interface": "eth0", "type": "nic"}, "Persona": {"Policy": "whole", "Exclusive": true},
			"Spec": {"name": "", "taints": [{"key": "dra.networking/unavailable", "value": "no-carrier", "effect": "NoSchedule"}]}},
			{"Pool": "worker-1/eth1", "Name": "eth1", "Device": {"name": "eth1", "interface": "eth1", "type": "nic"}, "Persona": {"Policy": "whole", "Exclusive": true}}]`,
		"/claims": `[{"claim": {"namespace": "default", "name": "p-net", "uid": "u"}, "devices": [{"request": "net", "pool": "worker-1/eth1", "name": "eth1"}],
			"plans": [{"topology": "whole", "steps": [{"name": "uplink", "type": "macvlan"}, {"name": "tune", "type": "tuning", "dependsOn": [0], "config": {"psk": "hunter2"}}]}]}]`,
		"/sandboxes": `[{"id": "first-sandbox-of-the-pod", "pod": {"namespace": "default", "name": "p"}, ` +
			`"claims": ["u"], "state": "attaching", "failure": "no such knob"}]`,
		"/leftovers": `[]`,
		"/state": `{"node": "worker-1", "synced": true, "nodeFound": true, "cniPlugins": ["host-device", "macvlan"],
			"topologies": [{"name": "whole", "plugins": ["macvlan", "host-local"]}], "settings": {"cdiDir": "/var/run/cdi",
			"pluginDir": "/var/lib/kubelet/plugins/dra.networking", "netnsDir": "/var/run/netns",
			"cniDirs": ["/opt/cni/bin"], "logDir": "/var/log/dra-network", "nriSocket": "/var/run/nri/nri.sock"}}`,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_,
			_ = w.Write([]byte(answers[r.URL.Path]))
	})} //nolint:gosec // a test
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return osdeps.Deps{
		Clock: testclock.NewFakeClock(time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)),
		Facts: func(context.Context, []netip.Addr) (discovery.Facts, error) {
			return discovery.Facts{Devices: []discovery.Device{{Name: "eth0", Interface: "eth0", Type: "nic"}}}, nil
		},
	}, socket
}

func TestReportAsksTheDriver(t *testing.T) {
	deps, socket := nodeAtWork(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "report", "--socket", socket, "--log-dir",
		loggedClaim(t), "--root", fakeRoot(t, "false")); code != exit.OK {
		t.Fatalf("exit status %d: %s", code, errs.String())
	}
	for _, want := range []string{
		"<title>(4) worker-1: network devices</title>", "2026-11-21 12:01:00 UTC", `<span class="word block bad">` +
			`no-carrier</span>`, "netdra trace default/p-net --calls", "<h3>default/p-net</h3>", "failed: no such knob",
		"net1 10.1.0.5/24",
		"CNI plugin host-local is not installed", "claims for topology whole are rejected on this node", // as in doctor
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Error("the page contains a plugin's configuration")
	}
}
