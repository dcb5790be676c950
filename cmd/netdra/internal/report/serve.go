package report

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodepage"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// serveReport serves the page until ctx ends. Requests under way are cut off at the end: the page only reads.
func (f *Options) serveReport(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	address, err := loopback(f.Serve)
	if err != nil {
		return fmt.Errorf("--serve %s: %w", f.Serve, err)
	}
	page := func(ctx context.Context) ([]byte, error) { return f.page(ctx, deps, streams) }
	if _, err := page(ctx); err != nil { // what would fail each time is told at once
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; choose another address with --serve", address, exit.Cause(err))
	}
	word := rand.Text()
	server := &http.Server{Handler: PageHandler(word, page), ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout: nodeclient.ReleaseLimit, MaxHeaderBytes: 1 << 14}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	out := printer.New(streams.Out)
	out.Printf("http://%s/%s/", listener.Addr(), word)
	printer.New(streams.Err).Printf("the page is made anew whenever it is opened; end this with Ctrl-C")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the page at %s any more: %w", address, exit.Cause(err))
	}
	return nil
}

// loopback reads an address that only this machine can reach. Host names are refused: another resolver may answer them
// differently.
func loopback(given string) (netip.AddrPort, error) {
	address, err := netip.ParseAddrPort(given)
	switch {
	case err != nil:
		return address, errors.New("give an IP address and a port, for example 127.0.0.1:9681 or [::1]:9681")
	case !address.Addr().Unmap().IsLoopback():
		return address, errors.New("anybody could read there what the driver tells root; give a loopback address, " +
			"for example 127.0.0.1:9681, and use ssh -L from elsewhere")
	}
	return address, nil
}

// PageHandler answers GET /<word>/ and nothing else. The word keeps other users of the machine out, and the check of
// the host keeps out pages of others, whose host name was made to resolve to this machine (DNS rebinding). Anything but
// the page is 404, also a wrong word, so the two cannot be told apart.
func PageHandler(word string, page func(context.Context) ([]byte, error)) http.Handler {
	mux := http.NewServeMux()
	var busy sync.Mutex // reading the machine is work: it is done once at a time
	mux.HandleFunc("GET /"+word+"/{$}", func(w http.ResponseWriter, r *http.Request) {
		busy.Lock()
		defer busy.Unlock()
		data, err := page(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(data) // whoever asked has gone
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", nodepage.Policy()+"; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		if !isThisMachine(r.Host) {
			http.Error(w, "open this page by the address that netdra has printed", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isThisMachine reports whether a Host header is a loopback address or localhost, with whatever port: that of ssh -L
// may be another.
func isThisMachine(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.Unmap().IsLoopback()
}
