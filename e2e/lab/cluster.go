package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// Files and directories in the run directory.
const (
	stateFile      = "cluster.json"
	containerdFile = "containerd.toml"
	kubeletFile    = "kubelet.yaml"
	pkiDir         = "pki"
	etcdDir        = "etcd"
	imageDir       = "images"
	helperDir      = "bin"
	manifestDir    = "manifests"
)

// Cluster is a running cluster. Its methods may be called concurrently, except Down. The methods of its Machine apply
// to the node or, in a multi-node cluster, to the control plane's machine. Cluster is a handle: [Up] and [Open] may
// return several handles for one cluster, in several processes. In a handle from Open, lifetime and exited are nil.
type Cluster struct {
	Machine
	// lifetime is the end of the pipe that keeps an attached cluster alive. It is nil for a detached cluster. Nothing
	// is ever written to the pipe: process 1 exits when it reads end of file.
	lifetime io.Closer
	// exited is closed when process 1 has exited, if process 1 is a child of this process. Down waits for this, because
	// otherwise, a zombie would keep the process ID.
	exited chan struct{}
}

// state contains everything that another process needs to find the cluster.
type state struct {
	Name     string   `json:"name"`
	NodeName string   `json:"nodeName"`
	RunDir   string   `json:"runDir"`
	Binaries Binaries `json:"binaries"`
	Cgroup   string   `json:"cgroup"`
	Detached bool     `json:"detached"`
	// Runtime and CRIODir are the values from the options.
	Runtime Runtime   `json:"runtime,omitempty"`
	CRIODir string    `json:"crioDir,omitempty"`
	Started time.Time `json:"started"`
	// Ready is true if the start, or the last boot of a node in a multi-node cluster, is complete. A detached cluster
	// that is not Ready was interrupted during startup, and the next Up removes it.
	Ready bool `json:"ready"`
	// Init is process 1 with its process ID on the host. It is zero before process 1 runs, and also in a handle for a
	// node in a multi-node cluster, because only the node's file contains it (see Machine.process).
	Init processID `json:"init"`
	// Nodes contains the names of the nodes in a multi-node cluster, and Links is the number of links from each node to
	// the wire.
	Nodes []string `json:"nodes,omitempty"`
	Links int      `json:"links,omitempty"`
	// Number, Boots and Commands describe a node in a multi-node cluster: its number (starting with 1), how many times
	// it has booted, and its components' command lines.
	Number   int                    `json:"number,omitempty"`
	Boots    int                    `json:"boots,omitempty"`
	Commands map[Component][]string `json:"commands,omitempty"`
}

func newCluster(o Options, s state) *Cluster {
	return &Cluster{Machine: Machine{opts: o, state: s}}
}

// save writes the state for other processes. The caller must hold the run directory's lock, because the temporary file
// has a fixed name.
func (s state) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.RunDir, stateFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// loadState reads the state of the cluster in runDir. The error is fs.ErrNotExist if no cluster exists.
func loadState(runDir string) (state, error) {
	var s state
	data, err := os.ReadFile(filepath.Join(runDir, stateFile))
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(data, &s)
	return s, err
}

// Open finds a cluster that another process has started. It only uses the options Name, CacheDir and RunDir. It does
// not wait, and also finds a cluster that is still starting. The error is [ErrNotRunning] if process 1 does not exist,
// even if parts of the cluster remain. The handle does not have to be closed. Down terminates the cluster for all
// handles.
func Open(o Options) (*Cluster, error) {
	o, err := o.forOpen()
	if err != nil {
		return nil, err
	}
	s, err := loadState(o.RunDir)
	if errors.Is(err, os.ErrNotExist) || err == nil && !s.Init.alive() {
		return nil, fmt.Errorf("cluster %q is %w: start it with: bin/lab up --name %s", o.Name, ErrNotRunning, o.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state of cluster %q: %w", o.Name, err)
	}
	o.NodeName, o.Runtime, o.CRIODir = s.NodeName, s.Runtime, s.CRIODir
	return newCluster(o, s), nil
}

// ErrNotRunning means that the cluster does not exist.
var ErrNotRunning = errors.New("not running")

// forOpen resolves only the options that identify the cluster, so that it also works outside a clone.
func (o Options) forOpen() (Options, error) {
	o.Name = or(o.Name, DefaultName)
	if !nameForm.MatchString(o.Name) {
		return o, fmt.Errorf("%q is not the name of a cluster", o.Name)
	}
	var err error
	if o.CacheDir, err = cacheDir(o.CacheDir); err != nil {
		return o, err
	}
	o.RunDir, err = filepath.Abs(or(o.RunDir, filepath.Join(o.CacheDir, "run", o.Name)))
	return o, err
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.state.Name }

// NodeName returns the name of the cluster's node.
func (m *Machine) NodeName() string { return m.state.NodeName }

// RunDir returns the directory that contains the cluster's state.
func (m *Machine) RunDir() string { return m.state.RunDir }

// ManifestDir returns the directory in which the kubelet looks for static pods.
func (m *Machine) ManifestDir() string { return filepath.Join(m.state.RunDir, manifestDir) }

// Logs returns the path of the file with the component's output. Each start of the component appends to the file, which
// is kept until the cluster is removed. "node" is process 1.
func (m *Machine) Logs(component Component) string {
	return filepath.Join(m.state.RunDir, node.LogDir, string(component)+".log")
}

// Kubeconfig returns the path of the administrator's kubeconfig. Its server address is only reachable from inside the
// cluster; see Exec and RESTConfig.
func (m *Machine) Kubeconfig() string { return m.opts.pki("admin.kubeconfig") }

// Status returns the state of the components. Components that were never started are omitted. In a multi-node cluster,
// the cluster's Status contains each node by name, like a component, because a node's process 1 is started in the same
// way.
func (m *Machine) Status(ctx context.Context) (map[Component]ComponentStatus, error) {
	resp, err := node.Call(ctx, m.state.RunDir, node.Request{Op: node.OpStatus})
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s for its state: %w", m, err)
	}
	out := map[Component]ComponentStatus{}
	for name, p := range resp.Processes {
		out[Component(name)] = ComponentStatus{PID: p.PID, Running: p.Running, Result: p.Result}
	}
	return out, nil
}

// ComponentStatus is the state of one component.
type ComponentStatus struct {
	// PID is the process ID inside the node. After the process has exited, it is the former process ID.
	PID int
	// Running reports whether the component is running.
	Running bool
	// Result describes how the component exited. It is empty while the component is running.
	Result string
}
