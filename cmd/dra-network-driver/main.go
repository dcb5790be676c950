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

	"github.com/dra-networking/dra-network-driver/cmd/internal/netdev"
	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The first signal cancels the context, and the driver then ends by itself: it waits for plugins that run and closes
// its gates. Kubelet kills what takes longer than the pod's grace period.
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
	var kubeconfig, file string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "dra-network-driver",
		Short: "Publish this node's network devices and attach what is allocated of them to pods",
		Long: `dra-network-driver runs on every node. It discovers the node's network devices, publishes those that
DeviceExposurePolicies allow as ResourceSlices, and attaches what the scheduler allocated to pods by running the CNI
plugins of a NetworkTopology before the pod's first container starts.

It needs: root, kubelet's plugin directories, the container runtime's NRI socket, and the CNI plugins of the node, all
at the same paths as on the host.`,
		Example: `  # as the DaemonSet runs it
  dra-network-driver --node-name=$(NODE_NAME)

  # with settings from a file, whose keys are called as the flags; flags win
  dra-network-driver --node-name=$(NODE_NAME) --config=/etc/dra-network/config.yaml

  # from a shell on the node, with another kubeconfig and more logs
  dra-network-driver --node-name=worker-1 --kubeconfig=/etc/kubernetes/admin.conf -v=4`,
		Version:       version.Get().Describe(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := applyFile(cmd.Flags(), file); err != nil {
					return err
				}
			}
			ctx := logging(cmd.Context(), verbosity)
			klog.FromContext(ctx).Info("Starting the driver", "version", version.Get().String(), "flags",
				settings(cmd.Flags()))
			return run(ctx, config, kubeconfig)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, configFlag, "", "YAML file with settings: a map with the names of these flags as keys")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server; default: as a pod")
	addFlags(flags, &config)
	flags.IntVarP(&verbosity, "v", "v", 2, verbosityHelp)
	cmd.AddCommand(replayCommand())
	return cmd
}

// inProcess are the CNI plugins of dra-network-cni that need no process of their own. Here is the only place that names
// one: the engine knows paths of programs and this interface.
func inProcess() map[string]executor.InProcess {
	return map[string]executor.InProcess{netdev.Name: netdev.NewInProcess()}
}

// addFlags adds those that are fields of the driver's configuration. Defaults are the paths of a stock kubelet and
// containerd. The DaemonSet mounts these paths at the same place, so one value is right inside of the container and on
// the host.
func addFlags(flags *pflag.FlagSet, config *plugin.Config) {
	flags.StringVar(&config.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node in Kubernetes")
	flags.StringVar(&config.PluginDir, "plugin-dir", "/var/lib/kubelet/plugins/dra.networking",
		"directory of sockets and journal")
	flags.StringVar(&config.RegistrarDir, "registrar-dir", "/var/lib/kubelet/plugins_registry",
		"kubelet's directory for plugin registration")
	flags.StringSliceVar(&config.CNIDirs, "cni-bin-dir", []string{"/opt/cni/bin"},
		"directories of CNI plugins, first match wins")
	flags.StringVar(&config.HostProcDir, "host-proc-dir", "/proc",
		"host /proc, used to find a sandbox's network namespace when the runtime no longer reports it")
	flags.StringVar(&config.NetNSDir, "netns-dir", "/var/run/netns", "directory in which network namespaces are pinned")
	flags.StringVar(&config.CDIDir, "cdi-dir", "/var/run/cdi", "directory of CDI specs")
	flags.StringVar(&config.DeviceInfoDir, "device-info-dir", nodeapi.DefaultDeviceInfoDir,
		"directory in which Multus reads about allocated devices")
	flags.StringVar(&config.LogDir, "cni-log-dir", "/var/log/dra-network",
		"directory of the CNI logs, one folder for each claim")
	flags.DurationVar(&config.LogRetention, "cni-log-retention", time.Hour,
		"how long the CNI log of a released claim stays")
	flags.StringVar(&config.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	flags.StringVar(&config.HTTPAddress, "http-address", "127.0.0.1:9680",
		"address of /healthz, /readyz and /metrics; empty: none")
	flags.BoolVar(&config.ListAttributes, "list-attributes", false, listsHelp)
	flags.BoolVar(&config.CompatibilityGroups, "compatibility-groups", false, groupsHelp)
	flags.BoolVar(&config.NetworkStatus, "network-status", false,
		"write the interfaces of pods into their annotation k8s.v1.cni.cncf.io/network-status")
}

// configFlag names a file with settings.
const configFlag = "config"

const (
	listsHelp = "publish CNI plugins as a list attribute: all nodes and the controller must agree, and the " +
		"feature DRAListTypeAttributes be on"
	groupsHelp = "keep devices apart by compatibility groups where those can say it; the feature " +
		"DRADeviceCompatibilityGroups must be on in all components"
	verbosityHelp = "log level: 0 problems only, 2 what happened, 4 why, 6 every call"
)

// replayCommand makes "publish", with which schedulers and policies are tried on hardware that is elsewhere. It only
// publishes: kubelet and the container runtime never hear of it.
func replayCommand() *cobra.Command {
	config := plugin.ReplayConfig{}
	var kubeconfig string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "publish --recording DIR --node-name NAME",
		Short: "Publish the devices of a recorded machine, to try policies and schedulers without it",
		Long: `publish offers the devices of a recorded machine in the cluster, as the driver of that machine would, until it is ended.
The ResourceSlices stay; they go with the Node object. Pods are scheduled, but a pod that gets one of these devices never
starts: nothing is attached.

The recording is what "netdra facts --record DIR" writes. It is read again every second: change it, and the slices change.`,
		Example: `  # on the machine with the hardware
  netdra facts --record /tmp/worker-7

  # anywhere: offer its devices as those of the node "worker-7", which must exist
  mkdir /tmp/cni && touch /tmp/cni/sriov /tmp/cni/macvlan && chmod +x /tmp/cni/*
  dra-network-driver publish --recording=/tmp/worker-7 --node-name=worker-7 --cni-bin-dir=/tmp/cni --kubeconfig=$HOME/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := logging(cmd.Context(), verbosity)
			if config.NodeName == "" || config.Recording == "" {
				return fmt.Errorf("which machine, and as which node? Give --recording and --node-name")
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
	flags.StringVar(&config.NodeName, "node-name", "", "name of the Node object that gets the devices")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server; default: as a pod")
	flags.StringSliceVar(&config.CNIDirs, "cni-bin-dir", []string{"/opt/cni/bin"},
		"directories of CNI plugins; devices are offered for those only")
	flags.BoolVar(&config.ListAttributes, "list-attributes", false, listsHelp)
	flags.BoolVar(&config.CompatibilityGroups, "compatibility-groups", false, groupsHelp)
	flags.IntVarP(&verbosity, "v", "v", 2, verbosityHelp)
	return cmd
}

// logging sets up logs as text on stderr.
func logging(ctx context.Context, verbosity int) context.Context {
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity)))
	klog.SetLogger(logger) // for libraries that have no context
	return klog.NewContext(ctx, logger)
}

func run(ctx context.Context, config plugin.Config, kubeconfig string) error {
	if config.NodeName == "" {
		return fmt.Errorf("the name of this node is not known; give --node-name or set NODE_NAME")
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

// restConfig returns how to reach the API server: a pod's service account for an empty path. The rate limit is above
// client-go's default of 5 a second: package kubeletplugin reads every claim before it is prepared, so pods that start
// together would wait for each other.
//
// Objects of Kubernetes come as protobuf, as for Kubernetes' own components: the API server encodes each of them once
// for all who watch, and at the start of a pod JSON would be one more encoding of pod and claim.
func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server; give --kubeconfig or run in a pod: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "dra-network-driver"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON // custom resources are JSON
	return config, nil
}
