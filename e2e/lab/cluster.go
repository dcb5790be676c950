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

// Cluster is a running cluster. Its methods may be called concurrently, except Down. The methods promoted from Machine
// apply to the node or, in a multi-node cluster, to the control plane's machine. Cluster is a handle: there may be
// several handles to one cluster, returned by [Up] and [Open] in different processes. In a handle from Open, lifetime
// and exited are nil.
type Cluster struct {
	Machine
	// lifetime is the end of the pipe that keeps an attached cluster alive. It is nil for a detached cluster. Nothing
	// is ever written to the pipe: process 1 exits when it reads end of file.
	lifetime io.Closer
	// exited is closed when process 1 has exited, if process 1 is a child of this process. Down waits for it, because a
	// zombie would keep the process ID in use.
	exited chan struct{}
}

// state is everything that another process needs to find the cluster.
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
	// Ready is true once the cluster has started or, for a node in a multi-node cluster, once its last boot is
	// complete. If a detached cluster is not Ready, its startup was interrupted, and the next Up removes it.
	Ready bool `json:"ready"`
	// Init is process 1, identified by its process ID on the host. It is zero before process 1 has been started, and in
	// a handle for a node in a multi-node cluster, because only the node's file contains it (see Machine.process).
	Init processID `json:"init"`
	// Nodes lists the names of the nodes in a multi-node cluster, and Links is the number of links from each node to
	// the wire.
	Nodes []string `json:"nodes,omitempty"`
	Links int      `json:"links,omitempty"`
	// Number, Boots and Commands describe a node in a multi-node cluster: its number (starting at 1), how many times it
	// has booted, and the command lines for its components.
	Number   int                    `json:"number,omitempty"`
	Boots    int                    `json:"boots,omitempty"`
	Commands map[Component][]string `json:"commands,omitempty"`
}

func newCluster(o Options, s state) *Cluster {
	return &Cluster{Machine: Machine{opts: o, state: s}}
}

// save writes the state for other processes. The caller must hold the lock on the run directory, because the temporary
// file has a fixed name.
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

// Open finds a cluster that another process has started. It uses only the options Name, CacheDir and RunDir. It does
// not wait, so it may return a cluster that is still starting. The error is [ErrNotRunning] if process 1 does not
// exist, even if parts of the cluster remain. The handle does not have to be closed. Down terminates the cluster for
// all handles.
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

// forOpen resolves only the options that identify the cluster, so it also works outside a clone.
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

// ManifestDir returns the directory where the kubelet looks for static pods.
func (m *Machine) ManifestDir() string { return filepath.Join(m.state.RunDir, manifestDir) }

// Logs returns the path of the component's log file. The file is appended to whenever the component is started again,
// and is kept until the cluster is removed. The component "node" is process 1.
func (m *Machine) Logs(component Component) string {
	return filepath.Join(m.state.RunDir, node.LogDir, string(component)+".log")
}

// Kubeconfig returns the path of the administrator's kubeconfig. Its server address is reachable only from inside the
// cluster; see Exec and RESTConfig.
func (m *Machine) Kubeconfig() string { return m.opts.pki("admin.kubeconfig") }

// Status returns the state of the components. Components that were never started are omitted. In a multi-node cluster,
// the cluster's Status also lists each node by name, because a node's process 1 is started in the same way as a
// component.
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
	// PID is the process ID inside the node. It keeps its value after the process has exited.
	PID int
	// Running reports whether the component is running.
	Running bool
	// Result describes how the component exited. It is empty while the component is running.
	Result string
}
