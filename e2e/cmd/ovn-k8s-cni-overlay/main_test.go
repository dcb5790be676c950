package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

// The plugin sends its environment and input unchanged, reports its duration, and returns the server's response.
func TestRequests(t *testing.T) {
	t.Setenv("CNI_ARGS", "K8S_POD_NAME=p;X=a=b")
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	var request ovnkube.Request
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/" {
			if err := json.Unmarshal(body, &request); err != nil {
				t.Error(err)
			}
			http.Error(w, "no pod of that name", http.StatusBadRequest)
		}
	})}
	go func() { _ = server.Serve(listener) }() // returns on Close
	defer func() { _ = server.Close() }()
	p := plugin{socket: listener.Addr().String()}
	const input = `{"cniVersion": "1.0.0", "type": "x"}`
	err = p.add(&skel.CmdArgs{StdinData: []byte(input)})
	if err == nil || !strings.Contains(err.Error(), "CNI request failed with status 400: 'no pod of that name") {
		t.Errorf("unexpected error: %v", err)
	}
	if request.Env["CNI_ARGS"] != "K8S_POD_NAME=p;X=a=b" || string(request.Config) != input {
		t.Errorf("the server received an unexpected request: %+v", request)
	}
	if got := strings.Join(paths, " "); got != "POST/ POST/metrics" {
		t.Errorf("the server got requests %s, want POST/ POST/metrics", got)
	}
	err = plugin{socket: "/nowhere"}.status(&skel.CmdArgs{})
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("error without a server = %v, want one that names the socket", err)
	}
}
