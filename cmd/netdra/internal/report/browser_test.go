package report

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// browser is headless Chromium with a proxy that serves only the page and records all requests.
type browser struct {
	program, proxy string
	mu             sync.Mutex
	asked          []string
}

func startBrowser(t *testing.T, page string) *browser {
	t.Helper()
	b := &browser{}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			b.program = path
			break
		}
	}
	if b.program == "" {
		t.Skip("no browser found; install chromium")
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Do not record the requests that Chromium sends on its own.
		if host := r.URL.Hostname(); !strings.HasSuffix(host, ".google.com") &&
			!strings.HasSuffix(host, ".googleapis.com") {
			b.mu.Lock()
			b.asked = append(b.asked, r.Method+" "+r.URL.String())
			b.mu.Unlock()
		}
		if r.URL.Host != "node.test" || r.URL.Path != "/" {
			http.Error(w, "there is nothing but the page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(proxy.Close)
	b.proxy = proxy.URL
	return b
}

// run opens the page and returns the rendered document and the browser's log.
func (b *browser) run(t *testing.T, arguments ...string) (stdout, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	arguments = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
		"--disable-component-update", "--disable-sync",
		"--no-first-run", "--user-data-dir=" + t.TempDir(), "--proxy-server=" +
			b.proxy, "--proxy-bypass-list=<-loopback>", "--enable-logging=stderr", "--hide-scrollbars",
	}, arguments...)
	cmd := exec.CommandContext(ctx, b.program, append(arguments, "http://node.test/")...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("the browser failed: %v:\n%s", err, errs.String())
	}
	return out.String(), errs.String()
}

// A browser renders the page without errors and sends no other requests.
func TestBrowserShowsThePage(t *testing.T) {
	for name, page := range map[string]string{"live": written(t, liveNode(t)),
		"hostile": written(t,
			renamed(t, liveNode(t), `"><img src=http://evil.test/x onerror=alert(1)><script>alert(2)</script>`))} {
		b := startBrowser(t, page)
		dom, log := b.run(t, "--dump-dom")
		if strings.Contains(log, "CONSOLE") {
			t.Errorf("%s: the browser logged a console message:\n%s", name, log)
		}
		b.mu.Lock()
		if diff := cmp.Diff([]string{"GET http://node.test/"}, b.asked); diff != "" {
			t.Errorf("%s: wrong requests (-want +got):\n%s", name, diff)
		}
		b.mu.Unlock()
		for _, want := range []string{"enp3s0f0v7", "shop/web-net"} {
			if !strings.Contains(dom, want) {
				t.Errorf("%s: the browser does not show %q", name, want)
			}
		}
	}
}
