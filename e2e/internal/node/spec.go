package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Names of files in the run directory that both lab and node use.
const (
	SpecFile      = "node.json"
	ControlSocket = "control.sock"
	LogDir        = "log"
	PrivateDir    = "private" // mount point of the node's own tmpfs
	KubeletDir    = "kubelet"
	ContainerdDir = "containerd"
	ContainersDir = "containers"
	DiskDir       = "disk" // files that a node in a multi-node cluster writes to host directories
)

// HostDir is a directory below PrivateDir in which members find the host directories that process 1 covers.
const HostDir = "host"

// LifetimeFD is the file descriptor for the pipe that reaches end of file when the cluster's owner exits. It is the
// first descriptor after the standard streams, where os/exec puts ExtraFiles.
const LifetimeFD = 3

// Spec describes how to set up the node's namespaces. It is passed in a file instead of as arguments, because on each
// boot, a member is started by a process that does not have access to the options. Only package lab calls Save, before
// it starts process 1.
type Spec struct {
	// RunDir is the directory that contains the cluster's state.
	RunDir string `json:"runDir"`
	// Keep lists directories that must remain accessible at their original paths even though the node hides parts of
	// the host's file system.
	Keep []string `json:"keep,omitempty"`
	// CNIDirs are combined in /opt/cni/bin. If several directories contain a file with the same name, the first
	// directory takes precedence.
	CNIDirs []string `json:"cniDirs"`
	// Hostname is the node's name.
	Hostname string `json:"hostname"`
	// APIAddress is the API server's address, usually on the loopback interface.
	APIAddress string `json:"apiAddress"`
	// Bridge is the name of the bridge for the pods. Its address is NodeAddress (in CIDR notation).
	Bridge      string `json:"bridge"`
	NodeAddress string `json:"nodeAddress"`
	// Files are written before any component starts. Keys are paths, and values are contents.
	Files map[string]string `json:"files,omitempty"`
	// Lifetime is true if process 1 has the pipe LifetimeFD and must watch it.
	Lifetime bool `json:"lifetime,omitempty"`
	// Joining describes how Join sets up another machine as the node; nil if this machine is the node.
	Joining *Joining `json:"joining,omitempty"`
	// Wire is the name of the bridge that connects the links of the member nodes on this machine. It is empty if there
	// are no members.
	Wire string `json:"wire,omitempty"`
	// Member contains the settings for a node in a multi-node cluster; otherwise, it is nil.
	Member *Member `json:"member,omitempty"`
}

// Member contains the settings for a node in a multi-node cluster. The node is started by the process 1 whose Spec has
// a Wire, and terminates together with that process. A node that is switched off keeps the files on its disk, but loses
// the files in memory.
type Member struct {
	// Number identifies the node, starting with 1.
	Number byte `json:"number"`
	// Gateway is the next hop for APIAddress.
	Gateway string `json:"gateway"`
	// Host is the directory where the node finds the host directories that the machine with the wire covers.
	Host string `json:"host"`
	// BootID is the node's boot ID, which is visible on the node instead of the kernel's boot ID.
	BootID string `json:"bootID"`
}

// Joining describes how a separate machine becomes the node.
type Joining struct {
	// Uplink is the machine's link to the cluster, and Gateway is the next hop for APIAddress. Without an uplink,
	// Components includes the API server.
	Uplink  string `json:"uplink,omitempty"`
	Gateway string `json:"gateway,omitempty"`
	// Cgroup is the parent of all pods' cgroups, without slashes.
	Cgroup string `json:"cgroup"`
	// Components are started in order, each as soon as the previous one is working.
	Components []Component `json:"components"`
	// Import is the command line for importing an image archive from standard input.
	Import []string `json:"import"`
}

// Component is a program that runs for as long as the machine does.
type Component struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// Health is the target of the component's health check: a URL, or the path of the socket that the component serves.
	Health string `json:"health"`
	// Images are archives that are imported as soon as the component is working.
	Images []string `json:"images,omitempty"`
}

// Save writes the Spec to the file that Load reads.
func (s Spec) Save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the node's settings: %w", err)
	}
	return os.WriteFile(filepath.Join(s.RunDir, SpecFile), data, 0o600)
}

// Load reads the Spec of the cluster in runDir.
func Load(runDir string) (Spec, error) {
	var s Spec
	data, err := os.ReadFile(filepath.Join(runDir, SpecFile))
	if err != nil {
		return s, fmt.Errorf("cannot read the node's settings: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("cannot decode the node's settings in %s: %w", runDir, err)
	}
	return s, nil
}
