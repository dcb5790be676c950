package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func explainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.ExplainOptions{}
	cmd := &cobra.Command{
		Use:   "explain DEVICE",
		Short: "Say why a device is offered as it is, or why not",
		Long: `explain says what the DeviceExposurePolicies make of one network device: under which names it is offered, what each of
them takes of what devices of its pool share, what came of every policy and why, and, of the driver on this node, which claims
hold it.

DEVICE is the name of its interface, its PCI address, or a name under which it is published. Without -f the driver of this node
is asked for the policies; with -f nothing is asked of anybody, and the machine may be one that "netdra facts" has recorded.

Exit status: 0 the device is offered, 1 it is not, is gone, or has no CNI plugin that is installed, 2 there is no such device, or the policies can't be read.`,
		Example: `  # on a node, as root
  netdra explain eth0

  # before policies are applied, for a recorded machine
  netdra explain 0000:03:00.2 -f policies.yaml --from worker-1
  netdra explain eth0-macvlan -f policies.yaml --from worker-1 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			return flags.Explain(cmd.Context(), deps, streams, arguments[0])
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	cmd.ValidArgsFunction = completeFrom(&flags.Socket, nodeclient.DeviceNames)
	cmd.Flags().StringVar(&flags.Socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers, if there is no -f")
	formFlag(cmd, &flags.Form)
	return cmd
}
