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

// cgroupPaths returns the directories for the cgroup with the given name: with cgroup version 1, one in each hierarchy;
// with version 2, a single one.
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
		if e.IsDir() { // symbolic links are aliases for a hierarchy
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

// makeCgroups creates the parent cgroup for all pods. The kubelet requires the cgroup in its cgroupRoot setting to
// exist, but does not create it. The name may be a path with several elements: in a multi-node cluster, the nodes'
// cgroups are below the cluster's cgroup.
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

// removeCgroups removes the cgroups, including all container cgroups left in them. The kernel releases a cgroup shortly
// after its last process exits. Until then, rmdir returns EBUSY, so removeCgroups retries until the context is done. It
// is not an error if a cgroup does not exist, so removeCgroups may be called again.
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

// removeTree removes nested cgroups, innermost first. The files in a cgroup cannot be removed individually and
// disappear with the cgroup. os.RemoveAll would try to remove the files first, and fail.
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
