package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// testDriver serves the API of the node's driver. It can only clean up the leftover named "good".
func testDriver(t *testing.T, keys ...string) (socket string) {
	t.Helper()
	left := map[string]bool{}
	for _, key := range keys {
		left[key] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]nodestate.Sandbox{{Pod: executor.Pod{Namespace: "ns", Name: "gone"}},
			{Pod: executor.Pod{Namespace: "ns", Name: "stuck"}, DetachFailure: "no plugin"}})
	})
	mux.HandleFunc("GET /leftovers", func(w http.ResponseWriter, _ *http.Request) {
		leftovers := []executor.Leftover{}
		for _, key := range keys {
			if left[key] {
				leftovers = append(leftovers, executor.Leftover{
					Key: key, Reason: "cannot return it: device or resource busy", Attempts: 10,
					Since: time.Unix(1_700_000_000, 0),
					Attachment: executor.Attachment{
						Pod: executor.Pod{Namespace: "ns", Name: "web"},
						Steps: []executor.StepRecord{{Step: cnichain.PlanStep{Name: "uplink",
							Device: &cnichain.Device{Name: "ens1v3", PCIAddress: "0000:01:00.4", Exclusive: true}}}},
					},
				})
			}
		}
		if err := json.NewEncoder(w).Encode(leftovers); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST /leftovers", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("key") != "sandbox/claim/good/0" {
			if r.FormValue("forget") != "true" {
				http.Error(w, "still busy", http.StatusConflict)
				return
			}
			_, _ = w.Write([]byte("still busy\n"))
		}
		delete(left, r.FormValue("key"))
	})
	socket = filepath.Join(t.TempDir(), "netdra.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}}
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

// A driver with a different version might not support all requests.
func TestDriverOfAnotherVersion(t *testing.T) {
	socket := answering(t, map[string]any{"/published": []any{}})
	if code, _, stderr := runNetdra(t, "", "devices", "--socket", socket); code != exit.Refused ||
		!strings.Contains(stderr, "does not support /claims; check that it has the same version as netdra") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

func TestRelease(t *testing.T) {
	const good, bad = "sandbox/claim/good/0", "sandbox/claim/bad/0"
	for name, test := range map[string]struct {
		left, arguments []string
		code            int
		want            []string
	}{
		"nothing": {nil, nil, exit.OK, []string{"no failed cleanups"}},
		"shown": {[]string{good}, nil, exit.OK,
			[]string{"KEY", good, "ens1v3", "ns/web", "uplink", "2023-11-14 22:13:20", "10", "busy"}},
		"as JSON": {[]string{good}, []string{"-o", "json"}, exit.OK, []string{`"key": "` + good + `"`}},
		"one":     {[]string{good, bad}, []string{good}, exit.OK, []string{"✓ " + good}},
		"one that not": {[]string{good, bad}, []string{bad}, exit.Failed, []string{"✗ " + bad + ": still busy",
			"To abandon a cleanup that can never succeed, run: netdra release KEY --forget"}},
		"forgotten": {[]string{good, bad}, []string{good, bad, "--forget"}, exit.OK, []string{
			"✓ " + good + ": cleaned up", "! " + bad + ": abandoned; leftovers of its plugin, such as " +
				"addresses and rules, stay on this node: still busy\n"}},

		"forgotten without a key": {[]string{good}, []string{"--forget"}, exit.Refused,
			[]string{"--forget requires the KEY of each cleanup to abandon"}},
		"forget all":  {[]string{good}, []string{"--forget", "--all"}, exit.Refused, []string{"forget", "all"}},
		"all":         {[]string{good, bad}, []string{"--all"}, exit.Failed, []string{"✓ " + good, "✗ " + bad}},
		"all of none": {nil, []string{"--all"}, exit.OK, []string{"no failed cleanups"}},
		"wrong form":  {nil, []string{"-o", "xml"}, exit.Refused, []string{"use table, wide, json or yaml"}},
		"no driver":   {nil, []string{"--socket", "/nowhere"}, exit.Refused, []string{"does not answer at /nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			arguments := append([]string{"release", "--socket", testDriver(t, test.left...)}, test.arguments...)
			code := run(t.Context(), osdeps.Deps{}, printer.Streams{Out: &out, Err: &errs}, arguments...)
			if code != test.code {
				t.Errorf("exit status %d, want %d", code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String()+errs.String(), want) {
					t.Errorf("output lacks %q:\n%s%s", want, &out, &errs)
				}
			}
		})
	}
}
