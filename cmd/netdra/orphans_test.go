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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// garbageDriver returns the socket of a driver with the given orphans and a counter of POST requests. The driver fails
// to remove orphans with "stuck" in their path.
func garbageDriver(t *testing.T, left ...nodestate.Orphan) (socket string, posts *int) {
	t.Helper()
	posts = new(int)
	directory, err := os.MkdirTemp("", "netdra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	socket = filepath.Join(directory, "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := append([]nodestate.Orphan{}, left...)
		if r.Method == http.MethodPost {
			*posts++
			for i := range found {
				if strings.Contains(found[i].Path, "stuck") {
					found[i].Error = "device or resource busy"
				}
			}
		}
		if err := json.NewEncoder(w).Encode(found); err != nil {
			t.Error(err)
		}
	})
	server := &httptest.Server{Listener: listener,
		Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}}
	server.Start()
	t.Cleanup(server.Close)
	return socket, posts
}

func TestOrphans(t *testing.T) {
	spec := nodestate.Orphan{Kind: "CDI spec", Path: "/var/run/cdi/dra.networking-u.json", Claim: "u"}
	stuck := nodestate.Orphan{Kind: "network namespace", Path: "/var/run/netns/dra-stuck"}
	for name, test := range map[string]struct {
		left      []nodestate.Orphan
		arguments []string
		code      int
		posts     int
		want      []string
	}{
		"nothing": {nil, nil, exit.OK, 0, []string{"there are no orphaned files"}},
		"shown": {[]nodestate.Orphan{spec, stuck}, nil, exit.OK, 0,
			[]string{"CDI spec", "/var/run/netns/dra-stuck", `to remove them, run "netdra release --orphans --all"`}},
		"wide":    {[]nodestate.Orphan{spec}, []string{"-o", "wide"}, exit.OK, 0, []string{"CLAIM UID"}},
		"JSON":    {[]nodestate.Orphan{spec}, []string{"-o", "json"}, exit.OK, 0, []string{`"claim": "u"`}},
		"removed": {[]nodestate.Orphan{spec}, []string{"--all"}, exit.OK, 1, []string{"✓ removed"}},
		"not removed": {[]nodestate.Orphan{spec, stuck}, []string{"--all"}, exit.Failed, 1,
			[]string{"✗ /var/run/netns/dra-stuck: device or resource busy"}},
		"a key":      {nil, []string{"key"}, exit.Refused, 0, []string{"takes no KEY"}},
		"wrong form": {nil, []string{"-o", "xml"}, exit.Refused, 0, []string{"use table, wide, json or yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			socket, posts := garbageDriver(t, test.left...)
			code, stdout, stderr := runNetdra(t, "", append([]string{"release", "--orphans", "--socket", socket}, test.arguments...)...)
			if code != test.code || *posts != test.posts {
				t.Errorf("exit status %d, want %d; %d removal requests", code, test.code, *posts)
			}
			for _, want := range test.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("output lacks %q:\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}
