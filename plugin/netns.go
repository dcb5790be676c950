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

// namespaces finds the network namespaces of sandboxes.
type namespaces struct {
	// procDir is the host's /proc; dir is where the runtime keeps namespaces.
	procDir, dir string
}

// Remedies for a sandbox whose namespace is not found: a sandbox that lost its process never gets the namespace back,
// but an unreadable file does not prove that.
const (
	deletePod = "delete the pod"
	checkProc = "check that the driver's container can read the host's /proc"
)

// pathOf returns the path of a sandbox's network namespace. It is empty for a pod on the host's network, and for a
// sandbox that has ended.
//
// If containerd (2.4.2) is killed during RunPodSandbox, it considers the sandbox valid after its restart, but has lost
// its specification, including its namespaces. The kubelet continues to start the containers. Only the sandbox's
// process remains.
func (n namespaces) pathOf(pod *api.PodSandbox) (string, error) {
	all := pod.GetLinux().GetNamespaces()
	for _, namespace := range all {
		if namespace.GetType() == "network" {
			return namespace.GetPath(), nil
		}
	}
	// By the OCI specification, a container gets each namespace in its list, and the runtime's namespace for every type
	// that is not listed, so a list without a network namespace belongs to a pod on the host's network. Only an empty
	// list is inconclusive: every sandbox has at least a mount namespace.
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

// pathOfProcess returns the path of the network namespace of a sandbox's process. If it returns an error, action is the
// remedy for the user.
func (n namespaces) pathOfProcess(pod *api.PodSandbox) (path, action string, err error) {
	process := filepath.Join(n.procDir, strconv.FormatUint(uint64(pod.GetPid()), 10))
	cgroup, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if errors.Is(err, os.ErrNotExist) {
		return "", deletePod, fmt.Errorf("process %d has ended", pod.GetPid())
	}
	if err != nil {
		return "", checkProc, err
	}
	// The kernel reuses the IDs of processes that have ended. The runtime includes the sandbox's ID in the name of its
	// cgroup, which contains no process of another pod.
	if !strings.Contains(string(cgroup), pod.GetId()) {
		return "", deletePod, fmt.Errorf("process %d now belongs to another cgroup", pod.GetPid())
	}
	path, err = n.path(filepath.Join(process, "ns", "net"))
	if errors.Is(err, os.ErrNotExist) {
		return "", deletePod, fmt.Errorf("process %d has ended", pod.GetPid())
	}
	return path, checkProc, err
}

// path prefers the runtime's own path for the namespace of a process, which exists as long as the sandbox.
func (n namespaces) path(ofProcess string) (string, error) {
	namespace, err := os.Stat(ofProcess)
	if err != nil {
		return "", err
	}
	if ours, err := os.Stat("/proc/self/ns/net"); err != nil || os.SameFile(ours, namespace) {
		return "", err // the driver is on the host's network
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

// isNamed reports whether the runtime has a path for the network namespace at a pin, so that its sandbox has not ended.
func (n namespaces) isNamed(pin string) bool {
	path, err := n.path(pin)
	return err != nil || path != pin // an unreadable path is no evidence of an end
}
