package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// testHelper is a Helper whose binary is a script.
type testHelper struct {
	*testing.T
	helper *Helper
}

func newTestHelper(t *testing.T, program string) *testHelper {
	dir := t.TempDir()
	h := &testHelper{t, &Helper{source: filepath.Join(dir, "helper"), dir: filepath.Join(dir, "plugins", "bin")}}
	h.release(program)
	return h
}

// release simulates an update to a driver version with a different binary.
func (h *testHelper) release(program string) {
	h.Helper()
	h.must(os.WriteFile(h.helper.source, []byte(program), 0o755)) //nolint:gosec // a program
}

func (h *testHelper) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// isInstalled fails the test unless the directory contains the program under each of its names and nothing else.
func (h *testHelper) isInstalled(program string) {
	h.Helper()
	for _, name := range append([]string{nodeapi.HelperName}, HelperPlugins()...) {
		path := filepath.Join(h.helper.dir, name)
		if got, err := os.ReadFile(path); err != nil || string(got) != program {
			h.Errorf("program %s contains %q, error %v", name, got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != helperMode {
			h.Errorf("%s has file info %v, error %v", name, info, err)
		}
	}
	if info, err := os.Lstat(h.helper.dir); err != nil || !info.IsDir() {
		h.Errorf("directory has file info %v, error %v", info, err)
	}
	entries, err := os.ReadDir(h.helper.dir)
	if err != nil || len(entries) != 1+len(HelperPlugins()) {
		h.Errorf("entries = %v, error = %v", entries, err)
	}
}

const program = "#!/bin/sh\nexit 1\n"

// The helper is replaced if the driver contains a different version, even while the helper is running. An error is
// returned if the helper cannot run.
func TestHelperIsInstalled(t *testing.T) {
	h := newTestHelper(t, program)
	h.must(os.MkdirAll(h.helper.dir, 0o755)) //nolint:gosec // as created by the driver
	h.must(os.WriteFile(filepath.Join(h.helper.dir, ".new-1"), nil, 0o600))
	for _, released := range []string{program, "#!/bin/sh\nexit 2\n", "#!/bin/sh\nexit 2\n"} {
		h.release(released)
		h.helper.verified = state("") // a new process
		h.must(h.helper.Install(t.Context()))
		h.isInstalled(released)
	}
	for released, want := range map[string]string{"no program": "is for the architecture of the node",
		"#!/bin/sh\nexit 0\n": "accepts an invalid call"} {
		h.release(released)
		h.helper.verified = state("")
		for range 2 { // the second call does not treat the binary as verified
			if err := h.helper.Install(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want %q", err, want)
			}
		}
	}
	h.must(os.Remove(h.helper.source))
	if err := h.helper.Install(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "in the directory of the driver's binary") {
		t.Errorf("error = %v, want an error about the driver's directory", err)
	}
}

// Any damage to the installed files while the driver is running is repaired by the next call.
func TestDamagedHelperIsRepaired(t *testing.T) {
	old := "#!/bin/sh\nexit 3\n" // has the same length as the correct program
	for name, damage := range map[string]func(dir, target string) error{
		"removed":             func(_, target string) error { return os.Remove(target) },
		"not executable":      func(_, target string) error { return os.Chmod(target, 0o644) },
		"unreadable":          func(_, target string) error { return os.Chmod(target, 0) },
		"setuid":              func(_, target string) error { return os.Chmod(target, 0o755|os.ModeSetuid) },
		"truncated":           func(_, target string) error { return os.Truncate(target, 5) },
		"empty":               func(_, target string) error { return os.Truncate(target, 0) },
		"an old version":      func(_, target string) error { return os.WriteFile(target, []byte(old), 0o755) },
		"renamed old version": func(dir, target string) error { return renameOver(dir, target, old) },
		"a directory":         func(_, target string) error { return replaceByDir(target) },
		"a dangling symlink":  func(_, target string) error { return replaceByLink(target, "/nowhere") },
		"a symlink to a copy": func(dir, target string) error { return moveAndLink(target, dir+"-copy") },
		"plugin removed":      func(dir, _ string) error { return os.Remove(filepath.Join(dir, "netdev")) },
		"plugin a file":       func(dir, _ string) error { return replaceByFile(filepath.Join(dir, "netdev")) },
		"plugin a directory":  func(dir, _ string) error { return replaceByDir(filepath.Join(dir, "netdev")) },
		"plugin elsewhere": func(dir, _ string) error {
			return replaceByLink(filepath.Join(dir, "netdev"), "/bin/sh")
		},
		"no directory":        func(dir, _ string) error { return os.RemoveAll(dir) },
		"no parent":           func(dir, _ string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"directory a file":    func(dir, _ string) error { return replaceByFile(dir) },
		"directory a symlink": func(dir, _ string) error { return moveAndLink(dir, dir+"-copy") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHelper(t, program)
			h.must(h.helper.Install(t.Context()))
			h.must(damage(h.helper.dir, filepath.Join(h.helper.dir, nodeapi.HelperName)))
			h.must(h.helper.Install(t.Context()))
			h.isInstalled(program)
		})
	}
}

// A correct helper is neither rewritten, because a hook may be running it, nor run again.
func TestHelperIsLeftAlone(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	script := "#!/bin/sh\necho >> " + runs + "\nexit 1\n"
	h := newTestHelper(t, script)
	h.must(h.helper.Install(t.Context()))
	before := state(filepath.Join(h.helper.dir, nodeapi.HelperName))
	for range 3 {
		h.must(h.helper.Install(t.Context()))
	}
	if state(filepath.Join(h.helper.dir, nodeapi.HelperName)) != before {
		t.Error("the unchanged file was written again")
	}
	if data, err := os.ReadFile(runs); err != nil || string(data) != "\n" {
		t.Errorf("the record of runs contains %q, error %v, want one run", data, err)
	}
}

func TestHelperThatIsCancelledIsNotVerified(t *testing.T) {
	h := newTestHelper(t, program)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.helper.Install(ctx); err == nil {
		t.Error("the helper was run although the context is canceled")
	}
	h.must(h.helper.Install(t.Context()))
	h.isInstalled(program)
}

func replaceByDir(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(path, "full"), 0o750)
}

func replaceByFile(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o600)
}

func replaceByLink(path, target string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

func moveAndLink(path, elsewhere string) error {
	if err := os.Rename(path, elsewhere); err != nil {
		return err
	}
	return os.Symlink(elsewhere, path)
}

func renameOver(dir, target, content string) error {
	temp := filepath.Join(filepath.Dir(dir), "old")
	if err := os.WriteFile(temp, []byte(content), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	return os.Rename(temp, target)
}
