package kubenode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// DestroyNamespace removes all references (processes and pins) to a pod's network namespace. A moment later, the kernel
// destroys the namespace and returns its physical links to the node's namespace, without notifying any component.
func (n *Node) DestroyNamespace(pod string) {
	n.t.Helper()
	dir, err := n.Process(pod)
	n.must(err)
	namespace, err := os.Readlink(filepath.Join(dir, "ns/net"))
	n.must(err)
	pins, err := filepath.Glob("/run/netns/*")
	n.must(err)
	for _, path := range pins {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err == nil && fmt.Sprintf("net:[%d]", stat.Ino) == namespace {
			n.must(unix.Unmount(path, unix.MNT_DETACH))
		}
	}
	pids, err := process.PIDs(process.InNamespace("net", namespace))
	n.must(err)
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.t.Fatal(err)
		}
	}
}
