package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/report"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// A report of files is written completely, with mode 0600, and is reproducible except for the time.
func TestReportOfFiles(t *testing.T) {
	dir := t.TempDir()
	recording, file := filepath.Join(dir, "worker-1"), filepath.Join(dir, "report.html")
	if err := discoverytest.ReferenceNode().Write(recording); err != nil {
		t.Fatal(err)
	}
	policies := filepath.Join("..", "..", "slices", "testdata", "reference-node.yaml")
	code, _, stderr := runNetdra(t, "", "report", "-f", policies, "--from", recording, "-o", file)
	if code != exit.OK || !strings.Contains(stderr, "written to "+file) {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	code, stdout, stderr := runNetdra(t, "", "report", "-f", policies, "--from", recording)
	hour := regexp.MustCompile(`[0-9:]{8} UTC`)
	if diff := cmp.Diff(hour.ReplaceAllString(string(written), ""), hour.ReplaceAllString(stdout, "")); diff != "" ||
		code != exit.OK {
		t.Errorf("exit status %d: %s (-file +standard output):\n%s", code, stderr, diff)
	}
	for _, want := range []string{"<h1>worker-1</h1>", "enp3s0f1v3", "policy exclude-management: excludes",
		"the driver was not queried"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

func TestReportRefuses(t *testing.T) {
	file := policyFile(t, somePolicies)
	for want, arguments := range map[string][]string{
		"does not answer":                 {"--socket", "/nowhere/netdra.sock"},
		"name a file of policies with -f": {"--from", "."},
		"omit -f":                         {"--serve", "127.0.0.1:0", "-f", file},
		"use a loopback address":          {"--serve", "0.0.0.0:9681"},
		"--serve [2001:db8::1]:9681: not a loopback address": {"--serve", "[2001:db8::1]:9681"},
		"not an IP address and port":                         {"--serve", "localhost:9681"},
		"cannot write /nowhere/report.html: no such file": {"-f", file, "--from", recordedFunctions(t), "-o",
			"/nowhere/report.html"},
		"cannot write /dev/null: it exists and": {"-f", file, "--from", recordedFunctions(t), "-o", "/dev/null"},
		"none of the others can be":             {"--serve", "127.0.0.1:0", "-o", "report.html"},
	} {
		if code, stdout, stderr := runNetdra(t, "",
			append([]string{"report"}, arguments...)...); code != exit.Refused || !strings.Contains(stderr, want) ||
			stdout != "" {
			t.Errorf("%v: exit status %d, want %q: %s", arguments, code, want, stderr)
		}
	}
}

// nodeAtWork returns a machine with two links, one of them in a pod, and the socket of its driver.
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
		"<title>(5) worker-1: network devices</title>", "2026-11-21 12:01:00 UTC", "cannot be allocated: " +
			"no-carrier", "netdra trace default/p-net --calls",
		`<span class="name line">default/p-net</span>`, `<span class="step bad">failed</span>`, "net1 10.1.0.5/24",
		"CNI plugin host-local is not installed: claims for topology whole are rejected on this node", // as doctor
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Error("the page contains the configuration of a plugin")
	}
}

// The page is read-only and requires the token in the URL and the host name of this machine.
func TestPageHandler(t *testing.T) {
	failing := false
	handler := report.PageHandler("word", func(context.Context) ([]byte, error) {
		if failing {
			return nil, errors.New("the driver does not answer")
		}
		return []byte("<!DOCTYPE html>"), nil
	})
	request := func(method, host, path string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(method, path, nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder
	}
	for _, test := range []struct {
		method, host, path string
		want               int
	}{
		{"GET", "127.0.0.1:9681", "/word/", 200}, {"HEAD", "127.0.0.1:9681", "/word/", 200}, {"GET", "localhost:8000",
			"/word/", 200}, {"GET", "[::1]:9681", "/word/", 200}, {"GET", "127.0.0.1", "/word/", 200},
		{"GET", "evil.example:9681", "/word/", 421}, {"GET", "localhost.evil.example", "/word/", 421},
		{"GET", "10.0.0.1:9681", "/word/", 421}, {"GET", "", "/word/", 421},
		{"POST", "127.0.0.1:9681", "/word/", 405}, {"GET", "127.0.0.1:9681", "/", 404}, {"GET", "127.0.0.1:9681",
			"/other/", 404}, {"GET", "127.0.0.1:9681", "/word/leftovers", 404},
	} {
		got := request(test.method, test.host, test.path)
		if got.Code != test.want {
			t.Errorf("%s %s of %q: status %d, want %d", test.method, test.path, test.host, got.Code, test.want)
		}
		if policy := got.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
			!strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s %s of %q: policy %q", test.method, test.path, test.host, policy)
		}
	}
	failing = true
	if got := request("GET", "127.0.0.1:9681", "/word/"); got.Code != http.StatusServiceUnavailable ||
		got.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("status %d, %s", got.Code, got.Header())
	}
}

// announced receives the printed address.
type announced chan string

func (a announced) Write(line []byte) (int, error) {
	a <- strings.TrimSpace(string(line))
	return len(line), nil
}

func TestReportServes(t *testing.T) {
	deps, socket := nodeAtWork(t)
	ctx, end := context.WithCancel(t.Context())
	address, code := make(announced, 1), make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		code <- run(ctx, deps, printer.Streams{Out: address, Err: &errs}, "report", "--socket", socket, "--log-dir",
			t.TempDir(), "--serve", "127.0.0.1:0", "--root", t.TempDir())
	}()
	var url string
	select {
	case url = <-address:
	case ended := <-code:
		t.Fatalf("exit status %d: %s", ended, errs.String())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each request renders the page again
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		_, err = page.ReadFrom(response.Body)
		if closing := response.Body.Close(); err != nil || closing != nil || response.StatusCode != http.StatusOK ||
			!strings.Contains(page.String(), "<h1>worker-1</h1>") {
			t.Errorf("status %d, %v, %v:\n%s", response.StatusCode, err, closing, page.String())
		}
	}
	end()
	if ended := <-code; ended != exit.OK {
		t.Error(fmt.Sprint("exit status ", ended, ": ", errs.String()))
	}
}
