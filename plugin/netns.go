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
	// procDir is the host's /proc, dir where the runtime keeps namespaces.
	procDir, dir string
}

var errNoNamespace = errors.New("the container runtime does not say which network namespace the sandbox has (it was " +
	"killed while it made it): delete the pod")

// pathOf returns the path of a sandbox's network namespace. It is empty for a pod on the host's network, and for one
// that has ended.
//
// containerd (2.4.2) that is killed in the middle of RunPodSandbox takes the sandbox for good when it is back, but has
// lost its specification, and with it its namespaces. Kubelet goes on to start the containers. What is left is the
// sandbox's process.
func (n namespaces) pathOf(pod *api.PodSandbox) (string, error) {
	all := pod.GetLinux().GetNamespaces()
	for _, namespace := range all {
		if namespace.GetType() == "network" {
			return namespace.GetPath(), nil
		}
	}
	if len(all) > 0 || pod.GetPid() == 0 {
		return "", nil
	}
	process := filepath.Join(n.procDir, strconv.FormatUint(uint64(pod.GetPid()), 10))
	cgroup, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: it has no process %d", errNoNamespace, pod.GetPid())
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoNamespace, err)
	}
	if !strings.Contains(string(cgroup), pod.GetId()) {
		return "", fmt.Errorf("%w: process %d is not the sandbox's any more", errNoNamespace, pod.GetPid())
	}
	return n.path(filepath.Join(process, "ns", "net"))
}

// path prefers the name that the runtime gave to a process's namespace, which is there as long as the sandbox.
func (n namespaces) path(ofProcess string) (string, error) {
	namespace, err := os.Stat(ofProcess)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoNamespace, err)
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

// isNamed says whether the runtime has a path for the network namespace at a pin: then its sandbox has not ended.
func (n namespaces) isNamed(pin string) bool {
	path, err := n.path(pin)
	return err != nil || path != pin // what can't be read is no evidence of an end
}
