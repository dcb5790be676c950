package node

import (
	"os"
	"path/filepath"
)

// DelegateCgroup switches controllers on for the children of a cgroup of version 2. Which there are differs from
// machine to machine: what cannot be had, kubelet reports by name.
func DelegateCgroup(path string) {
	for _, dir := range []string{filepath.Dir(path), path} {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
	}
}
