package plugin

import (
	"net"
	"strings"
	"testing"
)

// A port that somebody else has is said with the setting by which to choose another.
func TestHealthOnAPortThatIsTaken(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	d := &Driver{config: Config{HTTPAddress: taken.Addr().String()}, metrics: newMetrics()}
	if err := d.serveHTTP(t.Context()); err == nil || !strings.Contains(err.Error(), "set --http-address (node.httpAddress of the chart) to a free port") {
		t.Errorf("error is %v", err)
	}
}
