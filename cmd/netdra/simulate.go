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
		Short: "Say whether claims would be given their devices, where, and if not, what is in the way",
		Long: `simulate runs the scheduler's own allocator. It changes nothing.

Files may hold
  ResourceClaim, ResourceClaimTemplate, Pod         what is tried, in this order of files and documents; what fits takes its devices,
                                                    so that it counts for what comes after it. Claims and templates that pods name are
                                                    tried with them. A ResourceClaim with an allocation in its status holds that from
                                                    the beginning.
  DeviceExposurePolicy, NetworkTopology             what machines publish, and the DeviceClasses that the controller would make
  CNIPluginSchema, Namespace                        what topologies are judged by, and the labels that their allowedNamespaces want
  DeviceClass, ResourceSlice                        those of other drivers, for example
Other kinds are left out.

The machines are those that "netdra facts" has recorded in the directories of --machines, each a node of the directory's name, or this
machine; with --cluster the nodes, ResourceSlices, DeviceClasses and claims are those of a cluster, which is only read.

A refusal names claims that are in the way: without them the new ones fit, and with any one of them they don't. There may be others
in their place.

Of nodes nothing counts but their devices: whether the pod fits there otherwise, the scheduler decides.

Exit status: 0 everything fits, 1 something does not, 2 it can't be said.`,
		Example: `  # before anything is applied, for recorded machines
  netdra simulate -f policies.yaml -f topologies.yaml -f pods.yaml --machines worker-1,worker-2

  # would this pod fit into the cluster?
  netdra simulate -f pod.yaml --cluster

  # why is this one pending?
  netdra simulate --pod default/my-pod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	set := cmd.Flags()
	set.StringArrayVarP(&flags.Files, "filename", "f", nil, `YAML file of what is tried and of what it needs, or "-" for stdin`)
	set.StringSliceVar(&flags.Machines, "machines", nil, `directories with recordings of "netdra facts", separated by commas, in place of this machine`)
	set.BoolVar(&flags.Cluster, "cluster", false, "take nodes, slices, classes and claims of the cluster")
	set.StringArrayVar(&flags.Pods, "pod", nil, "try a pod of the cluster, NAMESPACE/NAME, with those of its claims that have no devices yet")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default: $KUBECONFIG, ~/.kube/config)")
	set.BoolVar(&flags.Features.ListAttributes, "list-attributes", false, "for a cluster with the feature DRAListTypeAttributes")
	set.BoolVar(&flags.Features.CompatibilityGroups, "compatibility-groups", false, "for a cluster with the feature DRADeviceCompatibilityGroups")
	formFlag(cmd, &flags.Output)
	cmd.MarkFlagsMutuallyExclusive("cluster", "machines")
	cmd.MarkFlagsMutuallyExclusive("pod", "machines")
	return cmd
}
