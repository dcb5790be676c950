package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/classes"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func classesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var form string
	var free bool
	var access remote.Access
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "List the device classes for claims",
		Long: `Use classes before you write a claim.

It lists the DeviceClasses of the cluster's NetworkTopologies: what a pod gets, which other classes the same claim
must request, which parameters a claim may set, and the address ranges that it may choose from, as far as the topology
declares them. It requires permission to list NetworkTopologies, which the ClusterRole dra-network-view grants.

With --free it also counts how many more claims fit on each node, up to 32 per node, using the scheduler's allocator.
This takes longer, covers the whole cluster, and requires the ClusterRole dra-network-capacity. Only devices are
counted. Other scheduling constraints are not checked. Neither is whether a node can run the steps after the device,
such as a VLAN or bond on top of it: run netdra doctor --all-nodes to check that.

Exit status: 0 the classes are listed, 2 the cluster cannot be read.`,
		Example: `  kubectl netdra classes
  kubectl netdra classes --free
  netdra classes -o json | jq '.[].name'`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := deps.Cluster(access)
			if err != nil {
				return err
			}
			return classes.List(cmd.Context(), cluster, streams, form, free)
		},
	}
	set := cmd.Flags()
	set.StringVar(&access.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default: as kubectl)")
	set.StringVar(&access.Context, "context", "", "context of the kubeconfig file")
	set.BoolVar(&free, "free", false, "count how many more claims fit on each node")
	listFlag(cmd, &form)
	return cmd
}
