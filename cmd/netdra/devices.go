package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/inventory"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

func devicesCommand(to console) *cobra.Command {
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
			if err := checkListForm(form); err != nil {
				return err
			}
			all, err := askAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			devices, err := chooseDevices(inventory.Devices(all), names)
			if err != nil {
				return err
			}
			return printDevices(to, form, devices)
		},
		ValidArgsFunction: completeFrom(&socket, deviceNames),
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	return cmd
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "socket", socketHere(), "where the driver of this node answers")
}

// askAll asks the driver who has what.
func askAll(ctx context.Context, socket string) (*nodestate.Answers, error) {
	all := &nodestate.Answers{}
	client := newDriverClient(socket)
	for _, one := range []struct {
		path string
		into any
	}{{"/published", &all.Published}, {"/claims", &all.Claims}, {"/sandboxes", &all.Sandboxes}, {"/leftovers", &all.Leftovers}} {
		if err := client.read(ctx, one.path, one.into); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// chooseDevices are those with the names; all without any.
func chooseDevices(devices []inventory.Device, names []string) ([]inventory.Device, error) {
	if len(names) == 0 {
		return devices, nil
	}
	chosen := []inventory.Device{}
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(devices), func(d inventory.Device) bool {
			return d.Name != name && d.Interface != name && d.PCIAddress != name
		})
		if len(found) == 0 {
			return nil, fmt.Errorf("no device %s is offered: \"netdra explain %s\" says why", name, name)
		}
		chosen = append(chosen, found...)
	}
	return chosen, nil
}

func printDevices(to console, form string, devices []inventory.Device) error {
	err := printList(to.out, form, devices, []column[inventory.Device]{
		{title: "DEVICE", value: func(d *inventory.Device) string { return d.Name }},
		{title: "TYPE", value: func(d *inventory.Device) string { return d.Type }},
		{title: "USE", value: func(d *inventory.Device) string { return d.Use }},
		{title: "STATE", value: func(d *inventory.Device) string { return d.State }},
		{title: "HELD BY", value: (*inventory.Device).HeldBy},
		{title: "SINCE", value: func(d *inventory.Device) string { return timeText(d.Since()) }},
		{title: "POOL", wide: true, value: func(d *inventory.Device) string { return d.Pool }},
		{title: "PCI", wide: true, value: func(d *inventory.Device) string { return d.PCIAddress }},
		{title: "POLICY", wide: true, value: func(d *inventory.Device) string { return d.Policy }},
		{title: "CNI PLUGINS", wide: true, value: func(d *inventory.Device) string { return strings.Join(d.Plugins, ", ") }},
		{title: "USED", wide: true, value: (*inventory.Device).CountersText},
	}, "no device is offered: \"netdra explain DEVICE\" says why")
	if form == formTable || form == formWide {
		for i := range devices {
			if devices[i].Why != "" {
				newPrinter(to.out).warn("%s: %s", devices[i].Name, devices[i].Why)
			}
		}
	}
	return err
}
