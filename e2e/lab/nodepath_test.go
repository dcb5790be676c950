package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A path on the node resolves to a file on the node, even if it contains links. The kernel would resolve each of these
// links to a file on the host.
func TestPathsStayInTheNode(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root") // a link, like /proc/PID/root
	if err := os.Symlink(t.TempDir(), root); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"run/netns", "var", "proc/1/ns", "data/a"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"var/run": "/run", "data/up": "../../../../run/netns", "data/chain": "/var/run/netns",
		"data/a/netns": "/run/netns",
		"data/loop":    "/data/loop", "proc/1/ns/net": "net:[4026531840]", "data/gone": "/nowhere/at",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "run/netns/dra-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/var/run/netns/dra-1":   "/run/netns/dra-1",
		"/var/run":               "/run",
		"/data/up/dra-1":         "/run/netns/dra-1",
		"/data/chain/new/file":   "/run/netns/new/file",
		"/data/gone/x":           "/nowhere/at/x",
		"/var/run/../../../etc":  "/etc",
		"/proc/1/ns/net":         "/proc/1/ns/net",
		"/no/such/../thing":      "/no/thing",
		"data//a/./netns/dra-1/": "/run/netns/dra-1",
	} {
		if got, err := resolveIn(root, path); err != nil || got != root+want {
			t.Errorf("%s resolves to %s, %v; want %s", path, got, err, root+want)
		}
	}
	for _, pattern := range []string{"/var/run/netns/dra-*", "/data/a*/netns/*", "/*/run/netns/dra-1", "/run/netns/*"} {
		got, err := globIn(root, pattern)
		if diff := cmp.Diff([]string{root + "/run/netns/dra-1"}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", pattern, err, diff)
		}
	}
	if got, err := globIn(root, "/run/netns/dra-1/x*"); err != nil || len(got) > 0 {
		t.Errorf("matches below a file = %v, %v; want none", got, err)
	}
	if got, err := resolveIn(root, "/data/loop/x"); err == nil {
		t.Errorf("a link to itself resolved to %s", got)
	}
	if got, err := resolveIn(filepath.Join(dir, "ended"), "/x"); err == nil {
		t.Errorf("a path on a node that has ended resolved to %s", got)
	}
	if _, err := globIn(root, "/run/[/x"); err == nil {
		t.Error("an invalid pattern was accepted")
	}
}

// It is not an error if a process exits while its files are being listed.
func TestFilesOfProcessesThatEnd(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	files, err := os.Open(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // the error just reports the kill
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	ended := fmt.Sprintf("/proc/self/fd/%d", files.Fd())
	if got, err := globIn("/", ended+"/*"); err != nil || len(got) > 0 {
		t.Errorf("files of an ended process = %v, %v; want none", got, err)
	}
}
