package plugin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// debug asks the driver as netdra does.
func (f *fixture) debug(method, path string) (code int, body string) {
	d := &Driver{publisher: f.dra.publisher, claims: f.claims, sandboxes: f.boxes, dra: f.dra, cluster: f.dra.cluster}
	response := httptest.NewRecorder()
	d.debugHandler().ServeHTTP(response, httptest.NewRequest(method, path, nil))
	return response.Code, response.Body.String()
}

func TestDebugShowsWhatThereIs(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	for path, want := range map[string]string{
		"/policies": `{"node":"n","labels":`, "/published": `"Name":"up1"`, "/claims": `"claim-a"`, "/sandboxes": `"state":"attaching"`, "/leftovers": "[]",
	} {
		if code, body := f.debug(http.MethodGet, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %q is not in %s", path, code, want, body)
		}
	}
	release()
	f.eventually("the sandbox is ready", func() bool { return f.ready("a-0") })
	if _, body := f.debug(http.MethodGet, "/sandboxes"); !strings.Contains(body, `"state":"ready"`) || !strings.Contains(body, `"claims":["claim-a"]`) {
		t.Errorf("sandboxes are %s", body)
	}
	for method, path := range map[string]string{http.MethodGet: "/secrets", http.MethodDelete: "/claims", http.MethodPost: "/claims"} {
		if code, _ := f.debug(method, path); code < 400 {
			t.Errorf("%s %s: status %d", method, path, code)
		}
	}
}

// Only root may ask, a socket that a killed driver has left is no hindrance, and the socket goes with the driver.
func TestDebugSocket(t *testing.T) {
	f := newFixture(t)
	d := &Driver{config: Config{PluginDir: f.dir}, publisher: f.dra.publisher, claims: f.claims, sandboxes: f.boxes, dra: f.dra}
	path := filepath.Join(f.dir, SocketName)
	f.must(os.WriteFile(path, nil, 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.serveDebug(ctx) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	f.eventually("the driver answers", func() bool {
		response, err := client.Get("http://driver/claims")
		if err != nil {
			return false
		}
		f.must(response.Body.Close())
		return response.StatusCode == http.StatusOK
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	cancel()
	f.must(<-ended)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestStatesOfSandboxes(t *testing.T) {
	box := newSandbox("id", cnichain.Pod{Namespace: "ns", Name: "a"}, &cnichain.Attachment{})
	if got := box.state(); got.State != "attaching" {
		t.Errorf("new: %+v", got)
	}
	box.stopped, box.failure = true, errors.New("no")
	if got := box.state(); got.State != "detaching" || got.Failure != "no" {
		t.Errorf("stopped: %+v", got)
	}
}
