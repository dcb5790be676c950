package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The helper is replaced when it is another one, also while it runs, and one that can't run is told.
func TestHelperIsInstalled(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "helper"), filepath.Join(dir, "plugins", "bin")
	install := func(program string) error {
		if err := os.WriteFile(source, []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		return installHelperFrom(context.Background(), source, target)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, ".new-killed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 2\n", "#!/bin/sh\nexit 2\n"} {
		if err := install(program); err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{nodeapi.HelperName}, helperPlugins()...) {
			if got, err := os.ReadFile(filepath.Join(target, name)); err != nil || string(got) != program {
				t.Errorf("%s is %q, %v", name, got, err)
			}
		}
	}
	entries, err := os.ReadDir(target)
	if err != nil || len(entries) != 1+len(helperPlugins()) {
		t.Errorf("entries are %v, %v", entries, err)
	}
	if err := install("no program"); err == nil || !strings.Contains(err.Error(), "without noexec") {
		t.Errorf("error is %v", err)
	}
	if err := installHelperFrom(context.Background(), filepath.Join(dir, "nowhere"), target); err == nil ||
		!strings.Contains(err.Error(), "beside the driver's binary") {
		t.Errorf("error is %v", err)
	}
}
