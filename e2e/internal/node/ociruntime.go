package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/capability"
)

// OCICommand is the labnode command that runs an OCI runtime; see [RunOCI].
const OCICommand = "oci-runtime"

// RunOCI replaces this process with an OCI runtime. Before that, it removes settings from the container's specification
// that cannot be applied on a machine that is itself a container. containerd has options for this, but CRI-O does not:
//
//   - capabilities that this process does not have
//   - a negative OOM score adjustment, which requires CAP_SYS_RESOURCE
//   - limits on huge pages, which require a cgroup controller that may be missing
//   - a limit of zero processes, which crun rejects; crun also rejects specification versions after 1.0
func RunOCI(program string, args []string) error {
	for _, path := range specsOf(args) {
		if err := adaptFile(path); err != nil {
			return fmt.Errorf("cannot adapt %s: %w", path, err)
		}
	}
	return unix.Exec(program, append([]string{program}, args...), os.Environ())
}

// specsOf returns the specification files that an OCI runtime's command line refers to: the configuration in the
// bundle, and the process file for "exec".
func specsOf(args []string) (paths []string) {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--bundle", "-b":
			value = filepath.Join(value, "config.json")
		case "--process", "-p":
		default:
			continue
		}
		if exists(value) {
			paths = append(paths, value)
		}
	}
	return paths
}

func adaptFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	adapt(spec, boundingSet())
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// adapt changes the specification of a container or of a process in a container.
func adapt(spec map[string]any, capabilities []string) {
	process := spec
	if inner, ok := spec["process"].(map[string]any); ok {
		process = inner
		spec["ociVersion"] = "1.0.2"
	}
	if score, ok := process["oomScoreAdj"].(float64); ok && score < 0 {
		process["oomScoreAdj"] = 0
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		names, _ := set.([]any)
		sets[name] = slices.DeleteFunc(names, func(c any) bool { return !slices.Contains(capabilities, fmt.Sprint(c)) })
	}
	linux, _ := spec["linux"].(map[string]any)
	resources, _ := linux["resources"].(map[string]any)
	delete(resources, "hugepageLimits")
	if pids, ok := resources["pids"].(map[string]any); ok {
		if limit, _ := pids["limit"].(float64); limit <= 0 {
			delete(resources, "pids")
		}
	}
}

// boundingSet returns the capabilities that this process and its descendants can have, by their names in the OCI
// specification.
func boundingSet() []string {
	var names []string
	for number, name := range capability.Names() {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0); err == nil && has == 1 {
			names = append(names, "CAP_"+name)
		}
	}
	return names
}
