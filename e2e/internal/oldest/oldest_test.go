package oldest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Build builds a commit, and later reuses the result even if the history is no longer available.
func TestBuild(t *testing.T) {
	clone, cache := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	files := map[string]string{
		"go.mod":            "module example.org/old\n\ngo 1.26.0\n",
		"cmd/hello/main.go": "package main\n\nfunc main() { println(\"old\") }\n",
		"deploy/crds/a":     "old\n",
	}
	write(t, clone, files)
	git(t, clone, "init", "--quiet")
	commit := commitAll(t, clone)
	files["cmd/hello/main.go"] = strings.ReplaceAll(files["cmd/hello/main.go"], "old", "new")
	files["deploy/crds/a"] = "new\n"
	write(t, clone, files)
	commitAll(t, clone)

	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if _, err := Build(context.Background(), clone, cache, commit); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := os.RemoveAll(filepath.Join(clone, ".git")); err != nil {
		t.Fatal(err)
	}
	version, err := Build(context.Background(), clone, cache, commit)
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(filepath.Join(version.Bin, "hello")).CombinedOutput(); string(output) != "old\n" {
		t.Errorf("the program printed %q (%v), want \"old\"", output, err)
	}
	if text, err := os.ReadFile(filepath.Join(version.Deploy, "crds/a")); string(text) != "old\n" {
		t.Errorf("the deploy directory contains %q (%v), want \"old\"", text, err)
	}
	if kept, err := os.ReadDir(cache); len(kept) != 1 {
		t.Errorf("the cache contains %v, %v", kept, err)
	}
}

// Build leaves nothing in the cache if the commit does not exist or does not compile.
func TestBuildFails(t *testing.T) {
	clone, cache := t.TempDir(), t.TempDir()
	if _, err := Build(context.Background(), clone, cache, Commit); !errors.Is(err, ErrNoHistory) {
		t.Errorf("error without a repository = %v, want ErrNoHistory", err)
	}
	write(t, clone, map[string]string{"go.mod": "module example.org/old\n\ngo 1.26.0\n", "cmd/hello/main.go": "broken",
		"deploy/a": ""})
	git(t, clone, "init", "--quiet")
	commit := commitAll(t, clone)
	if _, err := Build(context.Background(), clone, cache, Commit); !errors.Is(err, ErrNoHistory) ||
		!strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("error without the commit = %v, want ErrNoHistory and the git command", err)
	}
	if _, err := Build(context.Background(), clone, cache, commit); err == nil || errors.Is(err, ErrNoHistory) ||
		!strings.Contains(err.Error(), "expected 'package'") {
		t.Errorf("error for a commit that does not compile = %v, want the compiler's error", err)
	}
	if kept, err := os.ReadDir(cache); len(kept) != 0 {
		t.Errorf("the cache contains %v, %v", kept, err)
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func commitAll(t *testing.T, clone string) string {
	t.Helper()
	git(t, clone, "add", ".")
	git(t, clone, "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false", "commit",
		"--quiet", "-m", "test")
	return git(t, clone, "rev-parse", "HEAD")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	output, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output))
}
