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

// serveReport serves the page until ctx is done. It then aborts running requests, which only read.
func (f *Options) serveReport(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	address, err := loopback(f.Serve)
	if err != nil {
		return fmt.Errorf("--serve %s: %w", f.Serve, err)
	}
	page := func(ctx context.Context) ([]byte, error) { return f.page(ctx, deps, streams) }
	if _, err := page(ctx); err != nil { // report permanent errors immediately
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
	printer.New(streams.Err).Printf("the page is generated for each request; press Ctrl-C to stop")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot continue to serve the page at %s: %w", address, exit.Cause(err))
	}
	return nil
}

// loopback parses an address that only this machine can reach. It rejects host names, because other resolvers may
// resolve them differently.
func loopback(given string) (netip.AddrPort, error) {
	address, err := netip.ParseAddrPort(given)
	switch {
	case err != nil:
		return address, errors.New("not an IP address and port; use for example 127.0.0.1:9681 or [::1]:9681")
	case !address.Addr().Unmap().IsLoopback():
		return address, errors.New("not a loopback address: other hosts could read the driver's data; use a loopback " +
			"address, for example 127.0.0.1:9681, and ssh -L from other machines")
	}
	return address, nil
}

// PageHandler only answers GET /<word>/. The secret word locks out other users on the machine. The check of the Host
// header locks out web pages whose host name resolves to this machine (DNS rebinding). All other paths return 404, so a
// wrong word cannot be distinguished from a wrong path.
func PageHandler(word string, page func(context.Context) ([]byte, error)) http.Handler {
	mux := http.NewServeMux()
	var busy sync.Mutex // reading the machine is expensive: one request at a time
	mux.HandleFunc("GET /"+word+"/{$}", func(w http.ResponseWriter, r *http.Request) {
		busy.Lock()
		defer busy.Unlock()
		data, err := page(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(data) // fails if the client has disconnected
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", nodepage.Policy()+"; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		if !isThisMachine(r.Host) {
			http.Error(w, "open this page at the URL that netdra has printed", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isThisMachine reports whether a Host header is a loopback address or localhost. It accepts any port, since ssh -L may
// use a different one.
func isThisMachine(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.Unmap().IsLoopback()
}
