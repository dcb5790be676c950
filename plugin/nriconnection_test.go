package plugin

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// TestRuntimeView holds that a connection replaces what an earlier one has said of sandboxes, and that the end of one
// does not: containers of sandboxes that were decided on start while the driver connects again.
func TestRuntimeView(t *testing.T) {
	t.Parallel()
	var view runtimeView
	if view.isConnected() || view.requestTimeout() != 0 || view.wasDecided("a") || view.isBusy("b") {
		t.Error("before the first connection something is known")
	}
	view.begin(sets.New("a"), map[string]bool{"b": true})
	view.setTimeout(time.Second)
	view.setConnected(true)
	view.setConnected(false)
	if view.isConnected() || view.requestTimeout() != time.Second || !view.wasDecided("a") || view.wasDecided("b") ||
		!view.isBusy("b") || view.isBusy("a") {
		t.Error("the end of a connection changed what the runtime had said")
	}
	view.begin(sets.New("b"), nil)
	if view.wasDecided("a") || !view.wasDecided("b") || view.isBusy("b") {
		t.Error("another connection did not replace what the runtime had said")
	}
}
