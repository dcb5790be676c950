package telemetry

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
)

// The runtime receives an error regardless of its text, and the connection survives.
func TestFailuresDoNotEndTheRuntimesConnection(t *testing.T) {
	failure := ""
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService("nri", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Fail": func(_ context.Context, unmarshal func(any) error) (any, error) {
			return nil, errors.Join(unmarshal(&api.Empty{}), WireError(errors.New(failure)))
		},
	}})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(context.Background(), listener) }()
	t.Cleanup(func() { _ = server.Close() })
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(connection)
	t.Cleanup(func() { _ = client.Close() })
	for _, failure = range []string{"link is down", "raw \xff bytes", strings.Repeat("é", 3<<20)} {
		want := strings.ToValidUTF8(failure, "\uFFFD")[:10]
		if err := client.Call(t.Context(), "nri", "Fail", &api.Empty{}, &api.Empty{}); err == nil ||
			!strings.Contains(err.Error(), want) || errors.Is(err, ttrpc.ErrClosed) {
			t.Errorf("the runtime received %.50v, want %q", err, want)
		}
	}
	if WireError(nil) != nil {
		t.Error("WireError(nil) returned an error")
	}
}

func TestMessagesAreShortAndUTF8(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", maxMessage), "\xff\xfe" + strings.Repeat("x", maxMessage),
		"short"} {
		if got := Shorten(text); !utf8.ValidString(got) || len(got) > maxMessage+3 {
			t.Errorf("got %d bytes, valid UTF-8: %v", len(got), utf8.ValidString(got))
		}
	}
}
