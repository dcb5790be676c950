package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
)

func simulateCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &simulate.Options{}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE...",
		Short: "Simulate the allocation of claims",
		Long: `Use simulate to find out whether claims would get their devices, on which nodes, and what prevents it.
It runs the scheduler's allocator and the driver's checks. It changes nothing.

Files may contain
  ResourceClaim, Pod,          objects to try, in the order of files and documents. An object that fits takes its
  ResourceClaimTemplate        devices, which the following objects cannot use. Claims and templates of pods are tried
                               with their pods. A template is tried without a pod only if there are no pods. A
                               ResourceClaim of several pods is allocated once, with the first pod; only that pod gets
                               its exclusive devices. A claim with an allocation in its status holds it from the
                               beginning. A pod that requests extended resources of DeviceClasses is tried with the
                               claim that kube-scheduler would create.
  Deployment, StatefulSet,     their pods, as many as run concurrently (replicas, parallelism): NAME-1, NAME-2. The
  ReplicaSet, Job,             pods after the first one that does not fit are not tried.
  ReplicationController
  DeviceExposurePolicy         the policies of the machines
  NetworkTopology              topologies, with the DeviceClasses that the controller would create
  CNIPluginSchema, Namespace   schemas to validate topologies, and labels for their allowedNamespaces
  DeviceClass, ResourceSlice   for example those of other drivers
  DeviceTaintRule              devices that only claims with a toleration get
Other kinds are ignored. A note names ignored objects with claims, such as those of a DaemonSet or CronJob.

With --cluster, claims and templates that are not in the files are read from the pod's namespace in the cluster. A
claim that has devices keeps them.

The machines are recordings made with "netdra facts", in the directories of --machines, or this machine. The
name of the directory is the name of the node. With --cluster, nodes, ResourceSlices, DeviceClasses, DeviceTaintRules,
claims and NetworkTopologies are read from the cluster. If you have no permission to read topologies or
DeviceTaintRules, a note says what is unknown. The features of --list-attributes and --compatibility-groups are
assumed to be enabled if a slice uses them.

For each pod or claim it prints the nodes on which it fits, with the devices, or the reason why it does not fit. The
reason names the blocking claims: the new claims fit if all of these are released, but not if any one of them remains.
There may be other such sets of claims. Blocking pods and claims of the simulation are listed separately,
because they cannot be released. For a pod of --pod whose claims are allocated, it prints why the driver does not attach
them. Only devices are counted. Other scheduling constraints are not checked. Neither is whether a node has the plugins
and kernel link types for the steps after the device, such as a VLAN or bond on top of it: run netdra doctor
--all-nodes to check that.

Exit status: 0 everything fits, 1 something does not fit, 2 the result is unknown.`,
		Example: `  # for recorded machines, before anything is applied
  netdra simulate -f policies.yaml -f topologies.yaml -f pods.yaml --machines worker-1,worker-2

  # check whether a pod fits into the cluster
  netdra simulate -f pod.yaml --cluster

  # find out why a pod is pending
  netdra simulate --pod default/my-pod`,
		Args: noArguments("pass files with -f {}"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.Run(cmd.Context(), deps, streams)
		},
	}
	addSimulateFlags(cmd, flags)
	formFlag(cmd, &flags.Output)
	return cmd
}

func addSimulateFlags(cmd *cobra.Command, flags *simulate.Options) {
	set := cmd.Flags()
	set.StringArrayVarP(&flags.Files, "filename", "f", nil,
		`YAML file with the objects to try and their dependencies, or "-" for stdin`)
	set.StringSliceVar(&flags.Machines, "machines", nil,
		`directories of recordings made with "netdra facts", separated by commas, instead of this machine`)
	set.BoolVar(&flags.Cluster, "cluster", false, "use nodes, slices, classes and claims of the cluster")
	set.StringArrayVar(&flags.Pods, "pod", nil,
		"try a pod of the cluster, [NAMESPACE/]NAME, with its claims; allocated claims keep their devices")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", "",
		"kubeconfig file of the cluster (default: $KUBECONFIG, ~/.kube/config)")
	set.StringVar(&flags.Context, "context", "", "context of the kubeconfig file")
	set.StringVarP(&flags.Namespace, "namespace", "n", "",
		"namespace of objects without one (default: the context's with --cluster and --pod, otherwise default)")
	set.BoolVar(&flags.Features.ListAttributes, "list-attributes", false,
		"assume that the feature gate DRAListTypeAttributes is enabled")
	set.BoolVar(&flags.Features.CompatibilityGroups, "compatibility-groups", false,
		"assume that the feature gate DRADeviceCompatibilityGroups is enabled")
	set.BoolVar(&flags.DerivedAttributes, "derived-attributes", false,
		"assume that the feature gate DRADerivedAttributes is enabled")
	cmd.MarkFlagsMutuallyExclusive("cluster", "machines")
	cmd.MarkFlagsMutuallyExclusive("pod", "machines")
	_ = cmd.MarkFlagDirname("machines") // the flag exists
}
