package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

func buildCommand(w *where) *cobra.Command {
	var onlyDir bool
	var kubernetes string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs of the cluster, if they are not in the cache",
		Long: `build makes sure that Kubernetes, etcd, containerd, runc and the CNI plugins are built in the versions that
e2e/tools/go.mod pins, or the control plane of another version of Kubernetes that has an e2e/tools-VERSION.
Compilers and headers that are missing are installed where apt-get and root allow it. "lab up" does the same on its own.`,
		Example: `  lab build
  lab build --kubernetes 1.36
  ls "$(lab build --dir)/cni"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			b, err := lab.Build(cmd.Context(),
				lab.BuildOptions{CacheDir: w.cache, Kubernetes: kubernetes, Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			if onlyDir {
				return printf(cmd, "%s", b.Dir)
			}
			return printf(cmd, "Built in %s: %s", since(start), b.Dir)
		},
	}
	kubernetesFlag(cmd, &kubernetes)
	cmd.Flags().BoolVar(&onlyDir, "dir", false, "print nothing but the folder of the programs, for scripts")
	return cmd
}

func kubernetesFlag(cmd *cobra.Command, version *string) {
	cmd.Flags().StringVar(version, "kubernetes", "", "version such as 1.36, which provides only the control plane "+
		"(default: the version of e2e/tools)")
}

// upCommand returns the command that starts a detached cluster, since the command itself exits once the cluster is
// running. An interrupt before then aborts the startup and terminates all processes started so far.
func upCommand(w *where) *cobra.Command {
	var o lab.Options
	var quiet bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and leave it running",
		Long: `up builds what is missing, starts a cluster and returns when pods can be made. The cluster runs until
"lab down". What a crashed cluster of the same name left is removed first.

With --control-plane the cluster has neither kubelet nor containerd: pods are scheduled to the Node objects that you
create, and never run. That is enough to see how the scheduler handles the devices of many nodes.

With --nodes 3 the control plane has its own machine, and each node its own network, mounts, processes, kubelet and
containerd, and links to a wire that all share: see "lab node".`,
		Example: `  lab up
  lab up --name gates --feature-gate DRAListTypeAttributes=true
  lab up --name older --control-plane --kubernetes 1.36
  lab up --nodes 3
  CRIO_DIR=~/crio/bin lab up --name crio --runtime crio
  lab up --image driver.tar --label example.com/rack=7`,
		Args: cobra.NoArgs,
	}
	kubernetesFlag(cmd, &o.Kubernetes)
	f := cmd.Flags()
	f.BoolVar(&o.ControlPlaneOnly, "control-plane", false,
		"start only etcd, API server, controller manager and scheduler")
	f.StringVar(&o.NodeName, "node-name", "e2e-node", "name of the node, or of several without their numbers")
	f.IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	f.IntVar(&o.Links, "links", 4, "number of links of each of several nodes to the wire")
	f.StringToStringVar(&o.NodeLabels, "label", nil, "labels of each node")
	gates := f.StringToString("feature-gate", nil, "feature gates of all components, for example Name=true (default: "+
		"the defaults of the version)")
	f.StringToStringVar(&o.RuntimeConfig, "runtime-config", nil,
		"API groups to switch on or off, for example resource.k8s.io/v1beta2=true")
	runtime := f.String("runtime", string(lab.RuntimeContainerd), "container runtime: containerd, crio or crio-crun "+
		"(CRI-O with crun); crio and pinns are taken from $CRIO_DIR")
	f.DurationVar(&o.SyncFrequency, "sync-frequency", 5*time.Second, "interval of the kubelet's retries")
	f.StringArrayVar(&o.ExtraCNIDirs, "extra-cni-dir", nil, "directory with further CNI plugins (default $EXTRA_CNI_DIR)")
	f.StringSliceVar(&o.Images, "image", nil, "image archives to import")
	f.DurationVar(&o.StartTimeout, "timeout", 2*time.Minute, "maximum time for the start, without the build")
	f.BoolVarP(&quiet, "quiet", "q", false, "do not print the steps")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.FeatureGates, err = parseGates(*gates); err != nil {
			return err
		}
		o.Runtime = lab.Runtime(*runtime)
		o.Name, o.CacheDir, o.Detached = w.name, w.cache, true
		if !quiet {
			o.Progress = cmd.ErrOrStderr()
		}
		start := time.Now()
		if _, err := lab.Up(cmd.Context(), o); err != nil {
			return err
		}
		return printf(cmd, "Ready in %s.  Try: bin/lab%s kubectl get nodes", since(start), nameFlag(w))
	}
	return cmd
}

// downCommand returns the command that removes a cluster. If the cluster does not exist, the command prints a message
// but does not fail, so that scripts can run it first.
func downCommand(w *where) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a cluster and remove everything of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			found, err := lab.Remove(cmd.Context(), w.options())
			if err != nil {
				return err
			}
			if !found {
				return printf(cmd, "Cluster %q does not exist.", w.name)
			}
			return printf(cmd, "Gone in %s.", since(start))
		},
	}
}

func statusCommand(w *where) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of a cluster and its components",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.open()
			if errors.Is(err, lab.ErrNotRunning) {
				return printf(cmd, "Cluster %q is not running.", w.name)
			}
			if err != nil {
				return err
			}
			return printStatus(cmd, c)
		},
	}
}

func printStatus(cmd *cobra.Command, c *lab.Cluster) error {
	all, err := c.Status(cmd.Context())
	if err != nil {
		return err
	}
	if err := printf(cmd, "Cluster     %s\nNode        %s\nState in    %s\nKubeconfig  %s (server reachable inside "+
		"only)\n", c.Name(), c.NodeName(), c.RunDir(), c.Kubeconfig()); err != nil {
		return err
	}
	several := len(c.Nodes()) > 0
	return errors.Join(printComponents(cmd, all, several), printNodesOf(cmd, c))
}

// printNodesOf prints the state of the nodes in a multi-node cluster.
func printNodesOf(cmd *cobra.Command, c *lab.Cluster) error {
	if len(c.Nodes()) == 0 {
		return nil
	}
	return printNodes(cmd, c)
}

// printComponents prints the state of the components. If the nodes have their own machines, it omits components that
// run only on nodes.
func printComponents(cmd *cobra.Command, all map[lab.Component]lab.ComponentStatus, several bool) error {
	for _, comp := range lab.Components() {
		s, ok := all[comp]
		if !ok && several {
			continue
		}
		text := "never started"
		if s.Running {
			text = fmt.Sprintf("running, pid %d inside", s.PID)
		} else if ok {
			text = "ended: " + s.Result
		}
		if err := printf(cmd, "%-24s  %s", comp, text); err != nil {
			return err
		}
	}
	return nil
}
