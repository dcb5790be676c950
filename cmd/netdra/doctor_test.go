package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
)

// answering starts a fake driver that returns a fixed response for each path, and returns its socket.
func answering(t *testing.T, answers map[string]any) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, answer := range answers {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
	}
	directory, err := os.MkdirTemp("", "netdra") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	socket := filepath.Join(directory, "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}}
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

// fakeRoot creates the files of a node that runs containerd. nriOff is the value of the option that disables NRI.
func fakeRoot(t *testing.T, nriOff string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"etc/containerd", "proc/1", "run/cdi", "run/netns", "var/log/dra-network",
		"var/lib/kubelet/plugins/dra.networking"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = " + nriOff + "\n"
	if err := os.WriteFile(filepath.Join(root, "etc/containerd/config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestDoctor(t *testing.T) {
	socket := answering(t, map[string]any{
		"/state": map[string]any{"node": "worker-1", "heard": true, "nodeFound": true,
			"versions": map[string]string{"kubelet": "v1.37.1", "runtime": "containerd://2.2.3"},
			"settings": map[string]any{
				"pluginDir": "/var/lib/kubelet/plugins/dra.networking", "cdiDir": "/var/run/cdi",
				"netnsDir": "/var/run/netns", "logDir": "/var/log/dra-network", "nriSocket": "/var/run/nri/nri.sock",
			}},
		"/policies": map[string]any{}, "/published": []any{}, "/claims": []any{}, "/sandboxes": []any{},
		"/leftovers": []any{},
	})
	off := fakeRoot(t, "true")
	build := version.Get().String()
	why := strings.TrimPrefix(nodeclient.VersionsOf(nil).String(), "netdra "+build) // test binaries have no version
	for name, arguments := range map[string][]string{
		"faults":   {"--root", off, "--socket", socket},
		"all":      {"--root", fakeRoot(t, "false"), "--socket", socket, "--all"},
		"nodriver": {"--root", off, "--readyz", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runNetdra(t, "", append([]string{"doctor"}, arguments...)...)
			if want := map[string]int{"faults": exit.Failed, "nodriver": exit.Failed}[name]; code != want {
				t.Errorf("exit status %d, want %d", code, want)
			}
			golden(t, filepath.Join("testdata", "doctor", name+".txt"),
				strings.NewReplacer(off, "ROOT", socket, "SOCKET", build, "VERSION", why, "").Replace(stdout+stderr))
		})
	}
	code, stdout, _ := runNetdra(t, "", "doctor", "--root", off, "--socket", socket, "-o", "json")
	var findings []doctor.Finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil || code != exit.Failed ||
		doctor.Count(findings, doctor.Fail) != 1 {
		t.Errorf("exit status %d, %v: %s", code, err, stdout)
	}
	for _, arguments := range [][]string{{"--root", "/nowhere"}, {"-o", "xml"}, {"more"}} {
		if code, _, _ := runNetdra(t, "", append([]string{"doctor"}, arguments...)...); code != exit.Refused {
			t.Errorf("%v: exit status %d, want exit.Refused", arguments, code)
		}
	}
}

// If the socket does not exist yet, the reason is read from the driver's readiness probe.
func TestDoctorAsksTheProbe(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready: cannot open journal", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	_, stdout, _ := runNetdra(t, "", "doctor", "--root", fakeRoot(t, "false"), "--readyz", server.URL)
	if !strings.Contains(stdout, "why   not ready: cannot open journal") {
		t.Error(stdout)
	}
}
