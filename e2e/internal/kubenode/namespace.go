package kubenode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// DestroyNamespace takes away everything that holds the network namespace of a pod, processes and pins, so that the
// kernel destroys it.
func (n *Node) DestroyNamespace(pod string) {
	n.t.Helper()
	process, err := n.Process(pod)
	n.must(err)
	namespace, err := os.Readlink(filepath.Join(process, "ns/net"))
	n.must(err)
	pins, err := filepath.Glob("/run/netns/*")
	n.must(err)
	for _, path := range pins {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err == nil && fmt.Sprintf("net:[%d]", stat.Ino) == namespace {
			n.must(unix.Unmount(path, unix.MNT_DETACH))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	n.must(err)
	for _, dir := range processes {
		if current, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || current != namespace {
			continue
		}
		var pid int
		_, err := fmt.Sscan(filepath.Base(dir), &pid)
		n.must(err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.t.Fatal(err)
		}
	}
}
