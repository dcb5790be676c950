// Command dra-network-driver is the node driver: a kubelet DRA plugin and a container runtime NRI plugin in one
// process.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/dra-networking/dra-network-driver/cmd/internal/deviceonly"
	"github.com/dra-networking/dra-network-driver/cmd/internal/netdev"
	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// main runs the command. The first signal cancels the context. The driver then waits for running plugins, closes its
// gates, and exits. If that takes longer than the pod's grace period, the kubelet kills the driver.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	config := plugin.Config{Version: version.Get().String(), Plugins: inProcess()}
	var kubeconfig string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "dra-network-driver",
		Short: "Publish the network devices of this node and attach allocated devices to pods",
		Long: `dra-network-driver runs on every node. It discovers the node's network devices, publishes the devices
that DeviceExposurePolicies expose as ResourceSlices, and attaches allocated devices to pods by running the CNI plugins
of a NetworkTopology before the pod's first container starts.

It needs: root, the kubelet's plugin directories, the container runtime's NRI socket, and the CNI plugins of the node,
all at the same paths as on the host.`,
		Example: `  # As in the DaemonSet
  dra-network-driver --node-name=$(NODE_NAME)

  # From a shell on the node, with another kubeconfig and more logs
  dra-network-driver --node-name=worker-1 --kubeconfig=/etc/kubernetes/admin.conf -v=4`,
		Version:       version.Get().Describe(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := logging(cmd.Context(), verbosity)
			klog.FromContext(ctx).Info("Starting the driver", "version", version.Get().String(), "flags",
				settings(cmd.Flags()))
			return run(ctx, config, kubeconfig)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	addFlags(flags, &config)
	flags.IntVarP(&verbosity, "v", "v", 2, verbosityHelp)
	cmd.AddCommand(replayCommand())
	return cmd
}

// settings returns all flags and their values, for the log.
func settings(flags *pflag.FlagSet) []string {
	var all []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" && flag.Name != "version" { // cobra adds these to every command
			all = append(all, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return all
}

// inProcess returns the CNI plugins in dra-network-cni that do not need a separate process. No other function refers to
// specific plugins; the engine only uses program paths and this interface.
func inProcess() map[string]executor.InProcess {
	return map[string]executor.InProcess{netdev.Name: netdev.NewInProcess(), deviceonly.Name: deviceonly.InProcess{}}
}

// addFlags adds the flags for the driver's configuration. The defaults are the paths used by a stock kubelet and
// containerd. The DaemonSet mounts these paths unchanged, so the same value is valid both in the container and on the
// host.
func addFlags(flags *pflag.FlagSet, config *plugin.Config) {
	flags.StringVar(&config.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node in Kubernetes")
	flags.StringVar(&config.PluginDir, "plugin-dir", "/var/lib/kubelet/plugins/dra.networking",
		"directory of the sockets and the journal")
	flags.StringVar(&config.RegistrarDir, "registrar-dir", "/var/lib/kubelet/plugins_registry",
		"the kubelet's directory for plugin registration")
	flags.StringSliceVar(&config.CNIDirs, "cni-bin-dir", []string{"/opt/cni/bin"},
		"directories of CNI plugins, first match wins")
	flags.StringVar(&config.HostProcDir, "host-proc-dir", "/proc",
		"/proc of the host, used to find a sandbox's network namespace when the runtime no longer reports it")
	flags.StringVar(&config.NetNSDir, "netns-dir", "/var/run/netns", "directory where network namespaces are pinned")
	flags.StringVar(&config.CDIDir, "cdi-dir", "/var/run/cdi", "directory of CDI specs")
	flags.StringVar(&config.DeviceInfoDir, "device-info-dir", nodeapi.DefaultDeviceInfoDir,
		"directory where Multus looks up allocated devices")
	flags.StringVar(&config.AttributeDir, "attribute-dir", "/var/lib/dra-network/attributes.d",
		"directory of files with attributes of devices; empty or missing: none")
	flags.StringVar(&config.LogDir, "cni-log-dir", "/var/log/dra-network",
		"directory of the CNI logs, with one subdirectory for each claim")
	flags.DurationVar(&config.LogRetention, "cni-log-retention", time.Hour,
		"how long the CNI log of a released claim is kept")
	flags.StringVar(&config.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "NRI socket of the container runtime")
	flags.StringVar(&config.HTTPAddress, "http-address", "127.0.0.1:9680",
		"address of /healthz, /readyz and /metrics; empty disables it")
	flags.BoolVar(&config.ListAttributes, "list-attributes", false, listsHelp)
	flags.BoolVar(&config.CompatibilityGroups, "compatibility-groups", false, groupsHelp)
	flags.BoolVar(&config.NetworkStatus, "network-status", false,
		"write the interfaces of pods to their annotation k8s.v1.cni.cncf.io/network-status")
}

const (
	listsHelp = "publish CNI plugins as a list attribute; all nodes and the controller need the same setting, and " +
		"all components need the feature gate DRAListTypeAttributes"
	groupsHelp = "express mutually exclusive uses of a device as compatibility groups instead of counters where " +
		"possible; all components need the feature gate DRADeviceCompatibilityGroups"
	kubeconfigHelp = "kubeconfig file; default: the pod's service account"
	verbosityHelp  = "log level: 0 only problems, 2 actions, 4 reasons, 6 every call"
)

// replayCommand returns the command "publish", which makes it possible to test schedulers and policies without the
// hardware. The command only publishes devices; it does not register with the kubelet or the container runtime.
func replayCommand() *cobra.Command {
	config := plugin.ReplayConfig{}
	var kubeconfig string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "publish --recording DIR --node-name NAME",
		Short: "Publish the devices of a recorded machine, to test policies and schedulers without it",
		Long: `publish simulates the driver of a recorded machine: it publishes the machine's devices in the cluster
until it is terminated. The ResourceSlices remain until the Node object is deleted. Pods are scheduled, but a pod that
gets one of these devices never starts, because nothing is attached.

"netdra facts --record DIR" creates the recording. It is read every second; if you change it, the slices change.`,
		Example: `  # On the machine with the hardware
  netdra facts --record /tmp/worker-7

  # On any machine: publish the devices for the node "worker-7", which must exist
  mkdir /tmp/cni && touch /tmp/cni/sriov /tmp/cni/macvlan && chmod +x /tmp/cni/*
  dra-network-driver publish --recording=/tmp/worker-7 --node-name=worker-7 \
      --cni-bin-dir=/tmp/cni --kubeconfig=$HOME/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := logging(cmd.Context(), verbosity)
			if config.NodeName == "" || config.Recording == "" {
				return fmt.Errorf("cannot publish: --recording or --node-name is missing; set both")
			}
			var err error
			if config.RestConfig, err = restConfig(kubeconfig); err != nil {
				return err
			}
			return plugin.Replay(ctx, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&config.Recording, "recording", "", "directory of the recording")
	flags.StringVar(&config.NodeName, "node-name", "", "name of the Node object that the devices are published for")
	flags.StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	flags.StringSliceVar(&config.CNIDirs, "cni-bin-dir", []string{"/opt/cni/bin"},
		"directories of CNI plugins; devices are published only for installed plugins")
	flags.BoolVar(&config.ListAttributes, "list-attributes", false, listsHelp)
	flags.BoolVar(&config.CompatibilityGroups, "compatibility-groups", false, groupsHelp)
	flags.IntVarP(&verbosity, "v", "v", 2, verbosityHelp)
	return cmd
}

// logging returns a context with a logger that writes text to stderr.
func logging(ctx context.Context, verbosity int) context.Context {
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity)))
	klog.SetLogger(logger) // for libraries that do not accept a context
	return klog.NewContext(ctx, logger)
}

func run(ctx context.Context, config plugin.Config, kubeconfig string) error {
	if config.NodeName == "" {
		return fmt.Errorf("cannot determine the name of this node; set --node-name or NODE_NAME")
	}
	var err error
	if config.RestConfig, err = restConfig(kubeconfig); err != nil {
		return err
	}
	driver, err := plugin.New(ctx, config)
	if err != nil {
		return err
	}
	return driver.Run(ctx)
}

// restConfig returns the client configuration for the API server; an empty path selects the pod's service account. The
// rate limit is higher than client-go's default of 5 requests per second, because package kubeletplugin reads every
// claim before it is prepared, and pods that start together would otherwise have to wait for each other.
//
// Built-in objects are requested as protobuf, as in Kubernetes' own components. The API server encodes each object once
// for all watchers; if the driver used JSON, pods and claims would have to be encoded a second time whenever a pod
// starts.
func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot load the cluster configuration: %w; set --kubeconfig, or run in a pod", err)
	}
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "dra-network-driver"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON // custom resources are JSON
	return config, nil
}
