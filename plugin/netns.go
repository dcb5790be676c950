package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

type namespaces struct {
	// procDir is the path to the host's /proc; dir is the directory where the runtime mounts namespaces.
	procDir, dir string
}

// These are the remedies for a sandbox whose namespace cannot be found: if the sandbox's process has terminated, the
// namespace is gone for good, but an unreadable file does not prove that.
const (
	deletePod = "delete the pod"
	checkProc = "check that the driver's container can read the host's /proc"
)

// pathOf returns the path to a sandbox's network namespace. It returns "" for a sandbox that has terminated and for a
// pod in the host's network namespace, even if the runtime reports a path for it, as CRI-O does.
//
// If containerd (2.4.2) is killed during RunPodSandbox, it considers the sandbox valid after restarting, but has lost
// the sandbox's specification, including the namespaces. The kubelet goes on to start the containers. In this case, the
// namespace can be found only through the sandbox's process.
func (n namespaces) pathOf(pod *api.PodSandbox) (string, error) {
	all := pod.GetLinux().GetNamespaces()
	for _, namespace := range all {
		if namespace.GetType() == "network" {
			if found, err := os.Stat(namespace.GetPath()); err == nil {
				if ofHost, err := isOfHost(found); err != nil || ofHost {
					return "", err
				}
			}
			return namespace.GetPath(), nil
		}
	}
	// According to the OCI specification, a container gets a namespace for each type in its list and inherits the
	// runtime's namespace for every other type, so a non-empty list without a network namespace means that the pod uses
	// the host's network namespace. An empty list is inconclusive: every sandbox has at least a mount namespace.
	if len(all) > 0 || pod.GetPid() == 0 {
		return "", nil
	}
	path, action, err := n.pathOfProcess(pod)
	if err != nil {
		return "", fmt.Errorf("cannot find the network namespace of sandbox %s: the runtime reports none, probably "+
			"after a crash (%w); %s", pod.GetId(), err, action)
	}
	return path, nil
}

// pathOfProcess returns the path to the network namespace of a sandbox's process. If it returns an error, action tells
// the user how to fix the problem.
func (n namespaces) pathOfProcess(pod *api.PodSandbox) (path, action string, err error) {
	process := filepath.Join(n.procDir, strconv.FormatUint(uint64(pod.GetPid()), 10))
	cgroup, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if errors.Is(err, os.ErrNotExist) {
		return "", deletePod, fmt.Errorf("process %d has ended", pod.GetPid())
	}
	if err != nil {
		return "", checkProc, err
	}
	// The kernel reuses the IDs of terminated processes. To detect this, check the process's cgroup: its name includes
	// the sandbox's ID, and it contains no processes of other pods.
	if !strings.Contains(string(cgroup), pod.GetId()) {
		return "", deletePod, fmt.Errorf("process %d now belongs to another cgroup", pod.GetPid())
	}
	path, err = n.path(filepath.Join(process, "ns", "net"))
	if errors.Is(err, os.ErrNotExist) {
		return "", deletePod, fmt.Errorf("process %d has ended", pod.GetPid())
	}
	return path, checkProc, err
}

// path returns a path to a process's network namespace. It prefers the path at which the runtime has mounted the
// namespace, because that path exists for as long as the sandbox.
func (n namespaces) path(ofProcess string) (string, error) {
	namespace, err := os.Stat(ofProcess)
	if err != nil {
		return "", err
	}
	if ofHost, err := isOfHost(namespace); err != nil || ofHost {
		return "", err
	}
	entries, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	for _, entry := range entries {
		path := filepath.Join(n.dir, entry.Name())
		if named, err := os.Stat(path); err == nil && os.SameFile(named, namespace) && !host.IsPinName(entry.Name()) {
			return path, nil
		}
	}
	return ofProcess, nil
}

// isOfHost reports whether a network namespace is the host's, which is also the driver's.
func isOfHost(namespace os.FileInfo) (bool, error) {
	ours, err := os.Stat("/proc/self/ns/net")
	return err == nil && os.SameFile(ours, namespace), err
}

// isNamed reports whether the runtime still has the pinned network namespace mounted, which means that the sandbox
// still exists.
func (n namespaces) isNamed(pin string) bool {
	path, err := n.path(pin)
	return err != nil || path != pin // an unreadable path does not prove that the sandbox is gone
}
