package node

import (
	"os"
	"path/filepath"
)

// DelegateCgroup switches controllers on for the children of a cgroup of version 2. Which there are differs from
// machine to machine: what cannot be had, kubelet reports by name. Controllers are written one by one, since the kernel
// refuses all of a line for one that it does not know. The parent must be done first: a cgroup can hand on only what it
// was given. That fails where processes are in the parent (the kernel's "no internal processes" rule), which the root
// alone is exempt from.
func DelegateCgroup(path string) {
	for _, dir := range []string{filepath.Dir(path), path} {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
	}
}
