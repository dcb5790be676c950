package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the files in the run directory that both sides use.
const (
	SpecFile      = "node.json"
	ControlSocket = "control.sock"
	LogDir        = "log"
	PrivateDir    = "private" // mount point of the node's own tmpfs
	KubeletDir    = "kubelet"
	ContainerdDir = "containerd"
	DiskDir       = "disk" // what one node of several writes to folders of the host
)

// HostDir is below PrivateDir, and shows members what of the host process 1 covers.
const HostDir = "host"

// LifetimeFD is the file descriptor of the pipe whose end means that the owner of the cluster is gone. It is the first
// after the standard streams, where os/exec puts ExtraFiles.
const LifetimeFD = 3

// Spec describes how to prepare the node's namespaces. It is a file instead of arguments, since each boot starts a
// member again, from a process without access to the options. Save is called by package lab only, before the start.
type Spec struct {
	// RunDir holds the cluster's state.
	RunDir string `json:"runDir"`
	// Keep are the directories that must stay reachable under their own path although the node covers parts of the
	// host's file system.
	Keep []string `json:"keep,omitempty"`
	// CNIDirs are shown as one in /opt/cni/bin; the first wins where names collide.
	CNIDirs []string `json:"cniDirs"`
	// Hostname is the node's name.
	Hostname string `json:"hostname"`
	// APIAddress is given to the loopback interface.
	APIAddress string `json:"apiAddress"`
	// Bridge carries NodeAddress (a CIDR) and the pods.
	Bridge      string `json:"bridge"`
	NodeAddress string `json:"nodeAddress"`
	// Files are written before anything starts: path to content.
	Files map[string]string `json:"files,omitempty"`
	// Lifetime reports that the pipe LifetimeFD exists and must be watched.
	Lifetime bool `json:"lifetime,omitempty"`
	// Joining is what Join does on another machine; nil where this one is the node.
	Joining *Joining `json:"joining,omitempty"`
	// Wire is the bridge that connects the links of several nodes, which are members of this machine; empty if there
	// are none.
	Wire string `json:"wire,omitempty"`
	// Member is how one node of several differs from one that is all of a cluster; nil for all else.
	Member *Member `json:"member,omitempty"`
}

// Member contains the settings of one node of several. The process 1 that has the Wire starts it, and it ends with that
// process. When it is switched off, it keeps its writes to its directories, except for directories in memory.
type Member struct {
	// Number tells nodes apart, from 1.
	Number byte `json:"number"`
	// Gateway is the address by which APIAddress is reached.
	Gateway string `json:"gateway"`
	// Host is where the host's folders are seen, which the machine around covers.
	Host string `json:"host"`
	// BootID is the boot ID of the node, which replaces the kernel's.
	BootID string `json:"bootID"`
}

// Joining describes how a separate machine becomes the node.
type Joining struct {
	// Uplink is the machine's link to the cluster, Gateway the address behind it by which APIAddress is reached.
	// Without an uplink the API server is among Components.
	Uplink  string `json:"uplink,omitempty"`
	Gateway string `json:"gateway,omitempty"`
	// Cgroup is the parent of all pods' cgroups, without slashes.
	Cgroup string `json:"cgroup"`
	// Components are started in this order, each when the one before works.
	Components []Component `json:"components"`
	// Import is the command line that gets an image archive as its input.
	Import []string `json:"import"`
}

// Component is a program that runs as long as the machine.
type Component struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// Health is the place of its health check: a URL, or the path of a socket that it serves.
	Health string `json:"health"`
	// Images are archives that are imported as soon as it works.
	Images []string `json:"images,omitempty"`
}

// Save writes the Spec where Load finds it.
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
