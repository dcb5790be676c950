package nodeclient

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// chooseDevices returns the devices with the given names, or all devices if no names are given. A name may match
// several devices, because each way to use a link is a separate device.
func chooseDevices(devices []Device, names []string) ([]Device, error) {
	if len(names) == 0 {
		return devices, nil
	}
	chosen := []Device{}
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(devices), func(d Device) bool {
			return d.Name != name && d.Interface != name && d.PCIAddress != name
		})
		if len(found) == 0 {
			return nil, fmt.Errorf("no device %s is offered; for the reason, run \"netdra explain %s\"", name, name)
		}
		chosen = append(chosen, found...)
	}
	return chosen, nil
}

// ListDevices prints the devices that the driver publishes. If names are given, it only prints the devices with these
// names.
func ListDevices(ctx context.Context, streams printer.Streams, socket, form string, names []string) error {
	answers, err := ReadHolders(ctx, socket)
	if err != nil {
		return err
	}
	devices, err := chooseDevices(Devices(answers), names)
	if err != nil {
		return err
	}
	err = printer.List(streams.Out, form, devices, DeviceColumns(),
		"no device is offered; for the reason, run \"netdra explain DEVICE\"")
	if form == printer.FormTable || form == printer.FormWide {
		for i := range devices {
			if devices[i].Why != "" {
				printer.New(streams.Out).Warn("%s: %s", devices[i].Name, devices[i].Why)
			}
		}
	}
	return err
}

// DeviceColumns returns the columns for a table of devices.
func DeviceColumns() []printer.Column[Device] {
	return []printer.Column[Device]{
		{Title: "DEVICE", Value: func(d *Device) string { return d.Name }},
		{Title: "TYPE", Value: func(d *Device) string { return d.Type }},
		{Title: "USE", Value: func(d *Device) string { return d.Use }},
		{Title: "STATE", Value: func(d *Device) string { return d.State }},
		{Title: "USED", Value: (*Device).CountersText},
		{Title: "HELD BY", Value: (*Device).heldByShort},
		{Title: "SINCE", Value: func(d *Device) string { return printer.Time(d.Since()) }},
		{Title: "POOL", Wide: true, Value: func(d *Device) string { return d.Pool }},
		{Title: "PCI", Wide: true, Value: func(d *Device) string { return d.PCIAddress }},
		{Title: "POLICY", Wide: true, Value: func(d *Device) string { return d.Policy }},
		{Title: "CNI PLUGINS", Wide: true, Value: func(d *Device) string { return strings.Join(d.Plugins, ", ") }},
		{Title: "CLAIMS", Wide: true, Value: (*Device).HeldBy},
	}
}
