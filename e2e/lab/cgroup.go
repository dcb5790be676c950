package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroupPaths are the places of the cgroup name: one per hierarchy with version 1, a single one with version 2.
func cgroupPaths(name string) ([]string, error) {
	unified, err := cgroup2(cgroupRoot)
	if err != nil {
		return nil, err
	}
	if unified {
		return []string{filepath.Join(cgroupRoot, name)}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() { // links are other names of the same hierarchy
			paths = append(paths, filepath.Join(cgroupRoot, e.Name(), name))
		}
	}
	return paths, nil
}

func cgroup2(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	return st.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// makeCgroups makes the parent of all pods' cgroups, which kubelet wants to find. Kubelet does not make the cgroup of
// its setting cgroupRoot, and does not start without it. The name may have several parts: nodes of one cluster have
// theirs below the cluster's.
func makeCgroups(name string) error {
	paths, err := cgroupPaths(name)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := os.MkdirAll(p, 0o755); err != nil {
			return fmt.Errorf("cannot make a cgroup: %w", err)
		}
		if unified, err := cgroup2(cgroupRoot); err == nil && unified {
			node.DelegateCgroup(p)
		}
	}
	return nil
}

// removeCgroups removes the cgroups with all that containers left in them. The kernel takes a moment to let go of a
// cgroup after its last process, so this is tried again until the context ends. Until then rmdir says EBUSY. A cgroup
// that is gone is none to remove, so it may be called again.
func removeCgroups(ctx context.Context, name string) error {
	paths, err := cgroupPaths(name)
	if err != nil {
		return err
	}
	return poll(ctx, 5*time.Millisecond, func(context.Context) error {
		var errs []error
		for _, p := range paths {
			errs = append(errs, removeTree(p))
		}
		return errors.Join(errs...)
	})
}

// removeTree removes nested cgroups, the innermost first. Their files cannot be removed and go with them. A plain
// os.RemoveAll would begin with the files, and end there.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
			return fmt.Errorf("cannot remove cgroup %s: %w", d, err)
		}
	}
	return nil
}
