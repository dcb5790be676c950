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
		Short: "List device classes that claims may name",
		Long: `Use classes before you write a claim.

It lists the DeviceClasses of the cluster's NetworkTopologies: what a pod gets, which other classes the same claim must
ask for, which parameters a claim may set, and of which ranges it may choose addresses, as far as the topology says. It
needs the right to list NetworkTopologies, as the ClusterRole dra-network-view gives it.

With --free it also counts how many more claims fit on which nodes, by the scheduler's own allocator, up to 32 on each
node. That takes longer, and needs the ClusterRole dra-network-capacity, for the whole cluster. Only devices count:
whether a pod fits on the node otherwise is for the scheduler to decide, and whether the node can run the steps after
the device (a VLAN or bond on top) only the node knows: netdra doctor --all-nodes tells.

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
	set.BoolVar(&free, "free", false, "count how many more claims fit on which nodes")
	listFlag(cmd, &form)
	return cmd
}
