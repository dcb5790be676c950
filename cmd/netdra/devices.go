package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/clusterwide"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func devicesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "devices [DEVICE]...",
		Short: "List published devices and their holders",
		Long: `Use devices to see which devices of this node are free, and which claims and pods hold the others.

It lists the devices that the driver publishes. DEVICE is a published name, an interface name, or a PCI address.

STATE is one of
  free         no claim holds the device
  in use       a claim holds the device
  lost         a claim holds the device, but its interface is no longer in the pod
  blocked      free, but a device that excludes it is in use
  unusable     none of the CNI plugins of its policy works on the node, so no DeviceClass selects it
  quarantined, gone, withdrawn, no-carrier
               the value of the device's taint: no claim should get the device
USED is how much of each counter of a shared device is in use, out of its total. HELD BY names the first claim and pod
and counts the others; -o wide lists all of them. Times are in UTC.

Exit status: 0 the devices are listed, 2 the driver does not answer, or there is no such device.`,
		Example: `  sudo netdra devices
  sudo netdra devices -o wide
  sudo netdra devices eth1 -o json | jq '.[].holders'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return nodeclient.ListDevices(cmd.Context(), streams, socket, form, names)
		},
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"},
		object: func(place *remote.Place) []string { return place.Devices },
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			return clusterwide.ListDevices(ctx, cluster, streams, form)
		}})
	return cmd
}
