package attach

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// If a driver is killed while it returns a device, the device stays in a namespace next to the pin.
func TestNamespacesBesideKnownPinsStay(t *testing.T) {
	f := newFixture(t)
	f.boxes.PinDir = t.TempDir()
	known, unknown := host.PinName("a-0", time.Unix(1000, 0)), host.PinName("b-0", time.Unix(1000, 0))
	want := map[string]bool{known: true, host.ReturnPath(known): true, unknown: false, host.ReturnPath(unknown): false}
	for name := range want {
		path := filepath.Join(f.boxes.PinDir, name)
		f.must(os.WriteFile(path, nil, 0o600))
		f.must(f.node.PlaceholderNetns(path, "net1", nil))
	}
	f.must(f.boxes.removeUnknownPins(map[string]bool{known: true}))
	for name, stays := range want {
		if exists := f.node.Exists(filepath.Join(f.boxes.PinDir, name)); exists != stays {
			t.Errorf("namespace %s exists: %v, want %v", name, exists, stays)
		}
	}
}
