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

// DefaultName is the cluster people get who do not name one.
const DefaultName = "default"

// extraCNIVariable is the environment variable with a folder of further CNI plugins.
const extraCNIVariable = "EXTRA_CNI_DIR"

// ExtraCNIDirs returns the directory of CNI plugins in $EXTRA_CNI_DIR, if set, followed by the given ones. The user's
// directory comes first and takes precedence over plugins that a test replaces.
func ExtraCNIDirs(dirs ...string) []string {
	if dir := os.Getenv(extraCNIVariable); dir != "" {
		return append([]string{dir}, dirs...)
	}
	return dirs
}

// Options describe a cluster. The zero value is a good one.
type Options struct {
	// Name tells clusters apart that run at the same time; empty means DefaultName.
	Name string
	// CacheDir is where binaries are kept; empty means CacheDir().
	CacheDir string
	// Clone is the project's folder; empty means the one around the working directory.
	Clone string
	// Kubernetes is a version such as "1.36", which requires ControlPlaneOnly; empty means the version of e2e/tools.
	Kubernetes string
	// ControlPlaneOnly leaves out containerd and kubelet. Pods are scheduled, to Node objects that the caller makes,
	// and never run; nodes stay as they are made.
	ControlPlaneOnly bool
	// NodeElsewhere leaves out containerd and kubelet, too, but prepares everything that another machine needs to be
	// the node. That machine mounts RunDir and the programs under their own paths, has a NIC whose peer is in the
	// cluster's network namespace (see OnNetwork and Network), and runs "labnode join". API server and kubelet reach
	// each other.
	NodeElsewhere bool
	// RunDir holds the cluster's state and is removed with it; empty means run/NAME in the cache.
	RunDir string
	// NodeName is the name of the node; empty means "e2e-node". With several nodes it is the first part of their names:
	// the others are called "e2e-node-1" and so on.
	NodeName string
	// Nodes is how many nodes there are; zero means one, which is also the machine of the control plane. With more, the
	// control plane has a machine of its own, and nodes can be switched off one by one: see Cluster.Nodes.
	Nodes int
	// Links is how many links each of several nodes has to the wire that they share, called eth1, eth2 and so on; zero
	// means four.
	Links int
	// NodeLabels are further labels of the node.
	NodeLabels map[string]string
	// FeatureGates differ from the defaults of the Kubernetes version, for all components.
	FeatureGates map[string]bool
	// RuntimeConfig switches API groups on or off, for example "resource.k8s.io/v1beta2": "true".
	RuntimeConfig map[string]string
	// SyncFrequency is how often kubelet looks at its pods; zero means 5 s. Kubernetes' own default is a minute, so
	// that whatever failed once would be tried again only after that long.
	SyncFrequency time.Duration
	// NRITimeout is how long containerd waits for an answer of an NRI plugin; zero means its own default, 2 s.
	NRITimeout time.Duration
	// ExtraCNIDirs are directories with further CNI plugins, which appear in /opt/cni/bin. They take precedence over
	// later directories and over the reference plugins; empty means ExtraCNIDirs().
	ExtraCNIDirs []string
	// Images are image archives to import before the node starts, next to PauseImage and ToolboxImage.
	Images []string
	// StartTimeout bounds the start without the build; zero means two minutes.
	StartTimeout time.Duration
	// Detached lets the cluster outlive the process that started it.
	Detached bool
	// Progress gets a line for every step; nil means none.
	Progress io.Writer

	// allElsewhere reports that no part of the cluster runs here: see Pack.
	allElsewhere bool
	// number is the number of the node, from 1, if these are the options of one node of several.
	number int
}

// nameForm is what both a folder and a cgroup can be called. It is also a good host name, and label of DNS, to which
// several nodes add a number: 40 characters leave room for that.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// withDefaults fills in empty options and checks the rest. It creates no directory except the cache. It makes paths
// absolute, since components run in / and helpers in the clone.
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
	if o.NodeElsewhere && o.ControlPlaneOnly {
		return o, errors.New("a cluster has its node elsewhere, or none: set NodeElsewhere or ControlPlaneOnly")
	}
	return o, o.paths()
}

// elsewhere says whether another machine is the node.
func (o Options) elsewhere() bool { return o.NodeElsewhere || o.allElsewhere }

// nodeHere says whether containerd and kubelet are the cluster's own processes.
func (o Options) nodeHere() bool { return !o.ControlPlaneOnly && !o.elsewhere() && !o.several() }

// several says whether nodes have machines of their own.
func (o Options) several() bool { return o.Nodes > 1 }

// maxNodes and maxNodeLinks bound what addresses and hardware addresses leave room for.
const (
	maxNodes     = 50
	maxNodeLinks = 100
)

// checkNodes returns an error if the address ranges are too small for the number of nodes or links, or if several nodes
// are combined with a node elsewhere.
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

// nodeNames returns the names of the nodes if there are several.
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

// address is the node's.
func (o Options) address() string {
	if o.number == 0 {
		return nodeAddress
	}
	return memberAddress(o.number)
}

// checkFiles reports missing files immediately instead of after minutes of building.
func (o *Options) checkFiles() error {
	for _, path := range slices.Concat(o.Images, o.ExtraCNIDirs) {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("cannot use an image or a CNI folder: %w", err)
		}
	}
	return nil
}

// paths makes all paths absolute.
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

// wait bounds the start by the timeout. Errors show its cause instead of "context deadline exceeded".
func (o Options) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.StartTimeout,
		fmt.Errorf("the cluster was not ready after %s", o.StartTimeout))
}

// cgroupName is the cluster's own name in every cgroup hierarchy. The run directory is part of it, since two users can
// have clusters of the same name.
func cgroupName(name, runDir string) string {
	sum := sha256.Sum256([]byte(runDir))
	return "dra-lab-" + name + "-" + hex.EncodeToString(sum[:])[:8]
}

// gates renders feature gates for a command line.
func gates(m map[string]bool) string {
	return settings(m, func(v bool) string { return fmt.Sprint(v) })
}

// settings renders a map as a=b,c=d in order.
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
