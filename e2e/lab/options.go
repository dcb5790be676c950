package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultName is a cluster's name if none is given.
const DefaultName = "default"

// extraCNIVariable is the environment variable that specifies a directory with additional CNI plugins.
const extraCNIVariable = "EXTRA_CNI_DIR"

// ExtraCNIDirs returns the directory in $EXTRA_CNI_DIR, if it is set, followed by the given directories. The user's
// directory comes first, so its plugins take precedence over a test's plugins.
func ExtraCNIDirs(dirs ...string) []string {
	if dir := os.Getenv(extraCNIVariable); dir != "" {
		return append([]string{dir}, dirs...)
	}
	return dirs
}

// Options describes a cluster. The zero value is valid.
type Options struct {
	// Name distinguishes clusters that run concurrently; empty means DefaultName.
	Name string
	// CacheDir is the directory for binaries; empty means CacheDir().
	CacheDir string
	// Clone is the path of the project's clone; empty means the clone that contains the working directory.
	Clone string
	// Kubernetes is a Kubernetes version such as "1.36"; setting it requires ControlPlaneOnly. Empty means the version
	// in e2e/tools.
	Kubernetes string
	// ControlPlaneOnly omits containerd and the kubelet. Pods are scheduled to Node objects created by the caller, but
	// never run. No component changes the Node objects.
	ControlPlaneOnly bool
	// NodeElsewhere also omits containerd and the kubelet, but prepares everything that another machine needs to be the
	// node. That machine mounts RunDir and the programs at the same paths, has a NIC that is connected to the cluster's
	// network namespace (see OnNetwork and Network), and runs "labnode join". The API server and the kubelet can reach
	// each other.
	NodeElsewhere bool
	// RunDir contains the cluster's state and is removed together with the cluster; empty means run/NAME in the cache.
	RunDir string
	// NodeName is the name of the node; empty means "e2e-node". In a multi-node cluster, it is the prefix of the nodes'
	// names, such as "e2e-node-1".
	NodeName string
	// Nodes is the number of nodes; zero means one. A single node also runs the control plane. With several nodes, the
	// control plane has its own machine, and nodes can be switched off individually: see Cluster.Nodes.
	Nodes int
	// Links is the number of links from each node in a multi-node cluster to the common wire, named eth1, eth2 and so
	// on; zero means four.
	Links int
	// NodeLabels are additional labels for the node.
	NodeLabels map[string]string
	// FeatureGates override the default feature gates of the Kubernetes version, in all components.
	FeatureGates map[string]bool
	// RuntimeConfig enables or disables API groups, for example "resource.k8s.io/v1beta2": "true".
	RuntimeConfig map[string]string
	// SyncFrequency is the interval at which the kubelet syncs its pods; zero means 5 s. With the Kubernetes default of
	// one minute, the kubelet would retry a failed operation only after a minute.
	SyncFrequency time.Duration
	// Runtime is the node's container runtime; empty means containerd.
	Runtime Runtime
	// CRIODir is the directory with the CRI-O programs crio and pinns, for a node with that runtime. It may also
	// contain conmon, crun and skopeo; otherwise, the versions installed on the machine are used. Empty means
	// $CRIO_DIR.
	CRIODir string
	// NRITimeout is how long the runtime waits for a response from an NRI plugin; zero means the runtime's default of 2
	// s.
	NRITimeout time.Duration
	// ExtraCNIDirs are directories with additional CNI plugins, which appear in /opt/cni/bin. Earlier directories take
	// precedence over later directories and over the reference plugins; empty means ExtraCNIDirs().
	ExtraCNIDirs []string
	// Images are image archives to import before the node starts, in addition to PauseImage and ToolboxImage.
	Images []string
	// StartTimeout is the time limit for the start, excluding the build; zero means two minutes.
	StartTimeout time.Duration
	// Detached allows the cluster to outlive the process that started it.
	Detached bool
	// Progress receives a line for each step; nil discards them.
	Progress io.Writer

	// allElsewhere is true if the whole cluster runs on another machine: see Pack.
	allElsewhere bool
	// number is the node's number, starting at 1, if these are the options for a node in a multi-node cluster.
	number int
}

// nameForm matches names that are valid as a directory name, a cgroup name, a host name and a DNS label. In a
// multi-node cluster, a number is added to the name; the limit of 40 characters leaves room for that.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// withDefaults fills in empty options and checks the rest. The only directory that it creates is the cache. It makes
// paths absolute, because components run in / and helpers run in the clone.
func (o Options) withDefaults() (Options, error) {
	o.Name = or(o.Name, DefaultName)
	o.NodeName = or(o.NodeName, "e2e-node")
	if len(o.ExtraCNIDirs) == 0 {
		o.ExtraCNIDirs = ExtraCNIDirs()
	}
	if o.SyncFrequency == 0 {
		o.SyncFrequency = 5 * time.Second
	}
	if o.Links == 0 {
		o.Links = 4
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 2 * time.Minute
	}
	for _, n := range []string{o.Name, o.NodeName} {
		if !nameForm.MatchString(n) {
			return o, fmt.Errorf("%q is not a good name: use up to 40 small letters, digits and dashes", n)
		}
	}
	if o.Kubernetes != "" && !o.ControlPlaneOnly {
		return o, fmt.Errorf("of Kubernetes %s there is only a control plane: set ControlPlaneOnly, which is "+
			"--control-plane of lab up", o.Kubernetes)
	}
	if err := o.checkNodes(); err != nil {
		return o, err
	}
	if err := o.checkFiles(); err != nil {
		return o, err
	}
	if err := o.checkRuntime(); err != nil {
		return o, err
	}
	if o.NodeElsewhere && o.ControlPlaneOnly {
		return o, errors.New("a cluster has its node elsewhere, or none: set NodeElsewhere or ControlPlaneOnly")
	}
	return o, o.paths()
}

// elsewhere reports whether another machine is the node.
func (o Options) elsewhere() bool { return o.NodeElsewhere || o.allElsewhere }

// nodeHere reports whether the cluster's own process 1 also runs the container runtime and the kubelet.
func (o Options) nodeHere() bool { return !o.ControlPlaneOnly && !o.elsewhere() && !o.several() }

// several reports whether this is a multi-node cluster, whose nodes have their own machines.
func (o Options) several() bool { return o.Nodes > 1 }

// maxNodes and maxNodeLinks are determined by the ranges of IP and hardware addresses.
const (
	maxNodes     = 50
	maxNodeLinks = 100
)

// checkNodes returns an error if the address ranges are too small for the number of nodes or links, or if multiple
// nodes are combined with a node elsewhere.
func (o Options) checkNodes() error {
	switch {
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("a cluster cannot have %d nodes: use 1 to %d", o.Nodes, maxNodes)
	case o.Links < 1 || o.Links > maxNodeLinks:
		return fmt.Errorf("a node cannot have %d links to the wire: use 1 to %d", o.Links, maxNodeLinks)
	case o.several() && (o.ControlPlaneOnly || o.elsewhere()):
		return errors.New("several nodes are on this machine: ControlPlaneOnly and NodeElsewhere say otherwise")
	}
	return nil
}

// nodeNames returns the names of the nodes in a multi-node cluster.
func (o Options) nodeNames() []string {
	if !o.several() {
		return nil
	}
	names := make([]string, o.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", o.NodeName, i+1)
	}
	return names
}

// address returns the node's address.
func (o Options) address() string {
	if o.number == 0 {
		return nodeAddress
	}
	return memberAddress(o.number)
}

// checkFiles returns an error if files are missing, so that the error is not reported only after a build that takes
// minutes.
func (o *Options) checkFiles() error {
	for _, path := range slices.Concat(o.Images, o.ExtraCNIDirs) {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("cannot use an image or a CNI folder: %w", err)
		}
	}
	return nil
}

// paths makes all paths in the options absolute.
func (o *Options) paths() error {
	var errs []error
	abs := func(p string) string {
		a, err := filepath.Abs(p)
		errs = append(errs, err)
		return a
	}
	cache, err := cacheDir(o.CacheDir)
	if err != nil {
		return err
	}
	o.CacheDir = cache
	o.RunDir = abs(or(o.RunDir, filepath.Join(cache, "run", o.Name)))
	o.ExtraCNIDirs = slices.Clone(o.ExtraCNIDirs)
	for i, p := range o.ExtraCNIDirs {
		o.ExtraCNIDirs[i] = abs(p)
	}
	o.Images = slices.Clone(o.Images)
	for i, p := range o.Images {
		o.Images[i] = abs(p)
	}
	if o.Clone == "" {
		o.Clone, err = findClone()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wait returns a context with the start timeout. Errors state the timeout instead of "context deadline exceeded".
func (o Options) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.StartTimeout,
		fmt.Errorf("the cluster was not ready after %s", o.StartTimeout))
}

// cgroupName returns the name of the cluster's cgroup in every hierarchy. It depends on the run directory, because two
// users may have clusters with the same name.
func cgroupName(name, runDir string) string {
	sum := sha256.Sum256([]byte(runDir))
	return "dra-lab-" + name + "-" + hex.EncodeToString(sum[:])[:8]
}

// gates formats feature gates for a command line.
func gates(m map[string]bool) string {
	return settings(m, func(v bool) string { return fmt.Sprint(v) })
}

// settings formats a map as a=b,c=d, sorted by key.
func settings[V any](m map[string]V, show func(V) string) string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+show(v))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
