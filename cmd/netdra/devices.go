package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func devicesCommand(streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "devices [DEVICE]...",
		Short: "List the devices that this node offers, and who has them since when",
		Long: `devices lists what the driver of this node publishes: whether a device is free, which claims and pods have it and since when,
and which are held back. DEVICE is the name under which one is published, the name of its interface, or its PCI address.

The column STATE says: free; in use; lost (in use, but its interface is not in the pod any more); blocked (free, but another device
that excludes it is in use); or why nobody should be given it, as the device's taint says: quarantined, gone, withdrawn,
no-carrier. Times are in UTC.

Exit status: 0 they are listed, 2 the driver does not answer, or there is no such device.`,
		Example: `  sudo netdra devices
  sudo netdra devices -o wide
  sudo netdra devices eth1 -o json | jq '.[].holders'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := printer.CheckListForm(form); err != nil {
				return err
			}
			all, err := nodeclient.ReadAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			devices, err := nodeclient.ChooseDevices(nodeclient.Devices(all), names)
			if err != nil {
				return err
			}
			return nodeclient.PrintDevices(streams, form, devices)
		},
		ValidArgsFunction: completeFrom(&socket, nodeclient.DeviceNames),
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	return cmd
}
