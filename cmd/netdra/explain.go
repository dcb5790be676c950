package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func explainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.ExplainOptions{}
	cmd := &cobra.Command{
		Use:   "explain DEVICE",
		Short: "Explain why a device is offered or hidden",
		Long: `Use explain when a device is missing from the ResourceSlices, or is not offered as you expect.

It prints the names under which the device is published, the shared resources of its pool that each of them consumes,
the attributes that policies add, with the source of each or the reason why the device lacks it, the outcome of every
DeviceExposurePolicy with its reason, and the claims that hold the device. DEVICE is an interface name, a PCI address,
or a published name.

Without -f it uses the data of this node's driver. With -f it uses the policies in files, for this machine or for a
recording made with "netdra facts", and does not show which claims hold the device. The addresses and labels of this
machine then come from the driver if it answers, or from flags; the output names the source.

Exit status: 0 the device is offered, 1 it is not offered, is gone, or none of its CNI plugins works on the node, 2
there is no such device, or the policies cannot be read.`,
		Example: `  # on a node, as root
  sudo netdra explain eth0

  # before policies are applied, for a recorded machine
  netdra explain 0000:03:00.2 -f policies.yaml --from worker-1
  netdra explain eth0-macvlan -f policies.yaml --from worker-1 -o json`,
		Args: countArguments(1, 1, "DEVICE", "eth0"),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			return flags.Explain(cmd.Context(), deps, streams, arguments[0])
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	formFlag(cmd, &flags.Form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, local: []string{"filename", "from"},
		each: true, object: func(place *remote.Place) []string { return place.Devices }})
	return cmd
}
