package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func planCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.Options{}
	cmd := &cobra.Command{
		Use:   "plan TOPOLOGY --device STEP=LINK...",
		Short: "Show the steps of a run",
		Long: `Use plan to see what "chain run" would do. Nothing is changed; plugins are only called for their
versions.

It compiles a topology for links of this machine and prints the steps in order: the plugin and its CNI version, the
interface and the source of its name, whether the step receives the results of earlier steps, and its configuration.
Templates of {{ device }} are rendered; those of other steps, pod, claim and node are rendered when the step runs.
Links that "chain run" rejects without --force, such as the link of the default route, are planned with a remark. So
are plugins that need link types which the kernel does not support; this is only checked as root.`,
		Example: `  netdra chain plan topology.yaml --device uplink=eth1
  netdra chain plan topologies.yaml --name bonded --device a=0000:3b:02.1 --device b=0000:3b:02.2 -o yaml`,
		Args: countArguments(1, 1, "TOPOLOGY", "topology.yaml --device uplink=eth1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.ShowPlan(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, flags)
	return cmd
}
