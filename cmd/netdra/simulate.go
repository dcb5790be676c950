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
		Long: `Use simulate to learn whether claims would get their devices, on which nodes, and what prevents it. It
runs the scheduler's own allocator and the driver's own checks. It changes nothing.

Files may hold
  ResourceClaim, ResourceClaimTemplate, Pod         what is tried, in the order of files and documents. What fits takes its devices,
                                                    so that it counts for what follows. Claims and templates that pods name are
                                                    tried with them. A ResourceClaim that several pods name is allocated once,
                                                    with the first of them; only that pod gets its exclusive
                                                    devices. One with an allocation in its status holds it from
                                                    the beginning. A pod that asks for extended resources of
                                                    DeviceClasses is tried with the claim that kube-scheduler makes.
  Deployment, StatefulSet, ReplicaSet,              their pods, as many as there are at once (replicas, parallelism):
  ReplicationController, Job                        NAME-1, NAME-2. After one that does not fit, none does.
  DeviceExposurePolicy, NetworkTopology             what machines publish, and the DeviceClasses that the controller would make
  CNIPluginSchema, Namespace                        what topologies are validated with, and the labels for their allowedNamespaces
  DeviceClass, ResourceSlice                        those of other drivers, for example
  DeviceTaintRule                                   what nobody gets who does not tolerate it
Other kinds are ignored. Those that make pods, such as DaemonSet and CronJob, are named as not looked at.

With --cluster, claims and templates that a pod names and no file has are those of its namespace in the cluster; a claim
that has devices keeps them.

The machines are the recordings of "netdra facts" in the directories of --machines or --from, each a node of the
directory's name, or this machine. With --cluster nodes, ResourceSlices, DeviceClasses, DeviceTaintRules, claims and
NetworkTopologies are those of a cluster, which is only read; whoever may not read topologies or DeviceTaintRules is
told what is not known. Two features are taken to be on if some slice uses them: --list-attributes and
--compatibility-groups.

For each pod or claim it prints the nodes on which it fits, with the devices, or the reason why it does not. A refusal
names claims that are in the way: without all of them the new claims fit, and with any one of them they do not. Other
sets of claims may exist. Pods and claims of the simulation that have what is wanted are all named, apart, since nobody
can release theirs, with how many of them are too many. Of a pod of --pod whose claims have their devices it prints why
the driver does not attach them. Only devices count: whether the pod fits on the node otherwise is for the scheduler to
decide, and whether the node has the plugins, and its kernel the types of links, that steps need after the device (a
VLAN or bond on top) only the node knows: netdra doctor --all-nodes tells.

Exit status: 0 everything fits, 1 something does not fit, 2 it could not be determined.`,
		Example: `  # before anything is applied, for recorded machines
  netdra simulate -f policies.yaml -f topologies.yaml -f pods.yaml --machines worker-1,worker-2

  # would this pod fit into the cluster?
  netdra simulate -f pod.yaml --cluster

  # why is this one pending?
  netdra simulate --pod default/my-pod`,
		Args: noArguments("give files with -f {}"),
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
		`YAML file of what is tried and what it needs, or "-" for stdin`)
	set.StringSliceVar(&flags.Machines, "machines", nil,
		`directories of recordings of "netdra facts", separated by commas, in place of this machine`)
	set.StringSliceVar(&flags.From, "from", nil, "the same as --machines, as the flag is called elsewhere")
	set.BoolVar(&flags.Cluster, "cluster", false, "use nodes, slices, classes and claims of the cluster")
	set.StringArrayVar(&flags.Pods, "pod", nil,
		"try a pod of the cluster, [NAMESPACE/]NAME, with its claims; those that have devices keep them")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", "",
		"kubeconfig file of the cluster (default: $KUBECONFIG, ~/.kube/config)")
	set.StringVar(&flags.Context, "context", "", "context of the kubeconfig file")
	set.StringVarP(&flags.Namespace, "namespace", "n", "",
		"namespace of objects that have none (default: with --cluster and --pod that of the context, else default)")
	set.BoolVar(&flags.Features.ListAttributes, "list-attributes", false,
		"the cluster has the feature DRAListTypeAttributes")
	set.BoolVar(&flags.Features.CompatibilityGroups, "compatibility-groups", false,
		"the cluster has the feature DRADeviceCompatibilityGroups")
	set.BoolVar(&flags.DerivedAttributes, "derived-attributes", false,
		"the cluster has the feature DRADerivedAttributes")
	for _, name := range []string{"machines", "from"} {
		cmd.MarkFlagsMutuallyExclusive("cluster", name)
		cmd.MarkFlagsMutuallyExclusive("pod", name)
		_ = cmd.MarkFlagDirname(name) // the flag exists
	}
}
