package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of symbolic links in one path, as in the kernel.
const maxLinks = 40

// NodePath translates a path in the node's file system into a path that can be used from outside. It resolves symbolic
// links, such as /var/run, relative to the node's root: the kernel would resolve absolute links relative to the
// caller's root, which is the host's. The path does not have to exist. The result is valid until the node's current
// process 1 exits.
func (m *Machine) NodePath(path string) (string, error) {
	resolved, err := resolveIn(m.root(), path)
	if err != nil {
		err = fmt.Errorf("cannot find %s in %s: %w", path, m, err)
	}
	return resolved, err
}

// NodeGlob returns the sorted paths in the node's file system that match a pattern, translated into paths that can be
// used from outside. It is not an error if a directory is missing. Unlike in a shell, * also matches names that begin
// with a dot.
func (m *Machine) NodeGlob(pattern string) ([]string, error) {
	found, err := globIn(m.root(), pattern)
	if err != nil {
		err = fmt.Errorf("cannot look for %s in %s: %w", pattern, m, err)
	}
	return found, err
}

// root returns the path below which the node's file system is visible as the node's own processes see it.
func (m *Machine) root() string { return fmt.Sprintf("/proc/%d/root", m.process().PID) }

// resolveIn resolves a path below root without ever following a link out of root. Missing path components are kept as
// written, but root must exist: a terminated node has no files, and this must not be mistaken for a missing file. Links
// in /proc/PID are not resolved, since their targets are not file paths. This is not a security boundary: the node may
// replace a link between the check and the use, but it runs only code started by tests.
func resolveIn(root, path string) (string, error) {
	if _, err := os.Stat(root); err != nil {
		return "", err
	}
	resolved, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(resolved, name) // ".." ends at "/"
		if next == resolved || next == "/" {  // the root, which may itself be a link
			resolved = next
			continue
		}
		info, err := os.Lstat(filepath.Join(root, next))
		if isAbsent(err) || err == nil && info.Mode()&fs.ModeSymlink == 0 ||
			strings.HasPrefix(next, "/proc/") {
			resolved = next
			continue
		}
		if err != nil {
			return "", err
		}
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", path)
		}
		if filepath.IsAbs(target) {
			resolved = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return filepath.Join(root, resolved), nil
}

// globIn is like filepath.Glob, but resolves links in every matched path component, and returns an error if a component
// cannot be read.
func globIn(root, pattern string) ([]string, error) {
	dirs := []string{"/"}
	for _, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		var next []string
		for _, dir := range dirs {
			names, err := namesIn(root, dir, part)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				next = append(next, filepath.Join(dir, name))
			}
		}
		dirs = next
	}
	found := make([]string, 0, len(dirs))
	for _, dir := range dirs {
		path, err := resolveIn(root, dir)
		if err != nil {
			return nil, err
		}
		found = append(found, path)
	}
	return found, nil
}

// namesIn returns the names of the files in a directory below root that match a pattern without slashes. It returns no
// names if the directory does not exist.
func namesIn(root, dir, pattern string) ([]string, error) {
	path, err := resolveIn(root, dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if isAbsent(err) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		matches, err := filepath.Match(pattern, entry.Name())
		if err != nil {
			return nil, err
		}
		if matches {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// isAbsent reports whether an error means that a file does not exist. For the files of a process that has just exited,
// the kernel returns ESRCH (fs/proc/base.c).
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
