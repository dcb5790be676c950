package node

import (
	"os"
	"path/filepath"
)

// DelegateCgroup enables controllers for the children of a cgroup (version 2). The available controllers differ between
// machines; the kubelet reports the names of any that are missing. Controllers are enabled one at a time, because the
// kernel rejects the whole line if it contains an unknown controller. Parents are processed first, since a cgroup can
// only delegate controllers that are enabled for it. Delegation fails if the cgroup contains processes (the kernel's
// "no internal processes" rule); only the root cgroup is exempt.
func DelegateCgroup(path string) {
	for _, dir := range []string{filepath.Dir(path), path} {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
	}
}
