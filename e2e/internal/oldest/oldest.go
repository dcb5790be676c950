// Package oldest builds the oldest version of the project from which an upgrade is supported, using the history in the
// clone.
//
// Invariant: it uses the network only to download Go modules, and build results are never stored in the
// repository.
package oldest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Commit is the oldest version from which an upgrade is supported: the current version must be able to read that
// version's journal and gates, and to use its node socket. If a change drops support for an old format, set Commit to a
// later commit on main.
const Commit = "52e98703529faaaf9bc4bde99b1d07b5b2568245"

// Back is the oldest supported target of a downgrade: it still provides existing pods' CDI devices under the names that
// the current version reported to the kubelet. If a change makes the driver report different names, set Back to a
// commit on main that provides devices under those names.
const Back = "c3eee564157c18931c22379f0f5ff05ff66b15e9"

// ErrNoHistory is returned if the clone does not contain the commit.
var ErrNoHistory = errors.New("the clone does not have the commit")

// Version is the result of a build.
type Version struct {
	// Bin is the directory with the programs, and Deploy is the version's deploy directory.
	Bin, Deploy string
}

// Build builds a commit's programs into a cache directory named after the commit, unless the directory already exists.
// Concurrent builds are safe: each uses a temporary directory, which is renamed once it is complete, so a directory
// with its final name is always complete. Tests should skip on ErrNoHistory and fail on other errors.
func Build(ctx context.Context, clone, cache, commit string) (Version, error) {
	dir := filepath.Join(cache, "version-"+commit)
	version := Version{Bin: filepath.Join(dir, "bin"), Deploy: filepath.Join(dir, "deploy")}
	_, err := os.Stat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return version, err
	}
	if err := findCommit(ctx, clone, commit); err != nil {
		return version, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return version, fmt.Errorf("cannot make the cache folder: %w", err)
	}
	tmp, err := os.MkdirTemp(cache, "building-*")
	if err != nil {
		return version, fmt.Errorf("cannot build commit %s: %w", commit, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // the results have been moved out of it
	if err := buildInto(ctx, clone, commit, tmp); err != nil {
		return version, fmt.Errorf("cannot build commit %s: %w", commit, err)
	}
	err = os.Rename(filepath.Join(tmp, "kept"), dir)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		err = nil
	}
	return version, err
}

// findCommit returns ErrNoHistory if clone does not contain the commit or is not a repository.
func findCommit(ctx context.Context, clone, commit string) error {
	err := run(ctx, clone, "git", "cat-file", "-e", commit+"^{commit}")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w %s: %w; fetch the history of main, for example with git fetch --unshallow", ErrNoHistory,
			commit, err)
	}
	return err
}

// buildInto stores a commit's programs and deploy directory in dir/kept. It discards the sources, which tests do not
// need. It reads the sources from the commit instead of creating a worktree, so the clone is not changed.
func buildInto(ctx context.Context, clone, commit, dir string) error {
	archive, sources, kept := filepath.Join(dir, "sources.tar"), filepath.Join(dir, "sources"), filepath.Join(dir,
		"kept")
	for _, path := range []string{sources, kept} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{clone, "git", "archive", "--format=tar", "--output=" + archive, commit},
		{dir, "tar", "-x", "-f", archive, "-C", sources},
		// Use the same flags as the Makefile, so that Go reuses compiled packages that have not changed.
		{sources, "go", "build", "-trimpath", "-tags=grpcnotrace", "-buildvcs=false", "-ldflags=-s -w", "-o",
			filepath.Join(kept, "bin") + "/", "./cmd/..."},
	} {
		if err := run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(sources, "deploy"), filepath.Join(kept, "deploy"))
}

// run runs a command in a directory. It overrides environment variables that would change the result of Go builds.
func run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
