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

It lists what the driver publishes. DEVICE is a published name, the name of the interface, or the PCI address.

STATE is one of
  free         no claim holds it
  in use       a claim holds it
  lost         a claim holds it, and its interface has left the pod
  blocked      free, but a device that excludes it is in use
  unusable     the node has none of the CNI plugins of its policy, so no DeviceClass picks it
  quarantined, gone, withdrawn, no-carrier
               the value of the device's taint: no claim should get it
USED is how much of each counter of a shared device claims have, of how much there is. HELD BY counts the claims of a
device, and the pods of a claim, that are several, and names the first of them; -o wide names all. Times are in UTC.

Exit status: 0 the devices are listed, 2 the driver does not answer, or there is no such device.`,
		Example: `  sudo netdra devices
  sudo netdra devices -o wide
  sudo netdra devices eth1 -o json | jq '.[].holders'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return nodeclient.ListDevices(cmd.Context(), streams, socket, form, names)
		},
		ValidArgsFunction: completeFrom(&socket, nodeclient.DeviceNames),
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"},
		object: func(place *remote.Place) [][]string { return [][]string{place.Devices} },
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			return clusterwide.ListDevices(ctx, cluster, streams, form)
		}})
	return cmd
}
