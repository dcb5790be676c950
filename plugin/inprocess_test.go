package plugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/install"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The driver runs a plugin in its own process only if the plugin is in the driver's installation directory, not in a
// directory on the node.
func TestInProcessPluginsAreThoseThatAreInstalled(t *testing.T) {
	d := &Driver{config: Config{PluginDir: t.TempDir() + "/", Plugins: map[string]executor.InProcess{}}}
	installed, node := nodeapi.HelperDir(d.config.PluginDir), t.TempDir()
	for _, name := range install.HelperPlugins() {
		d.config.Plugins[name] = nil
		for _, dir := range []string{installed, node} {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil { //nolint:gosec // an executable
				t.Fatal(err)
			}
		}
		exec := d.inProcess()
		for dir, want := range map[string]bool{installed: true, node: false} {
			path, err := exec.FindInPath(name, []string{dir})
			if _, known := exec.Plugins[path]; err != nil || known != want {
				t.Errorf("%s runs in this process: %v, error %v; want %v", path, known, err, want)
			}
		}
	}
}
