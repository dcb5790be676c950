package clusterwide

import (
	"context"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// nodeDevice is a device with its node.
type nodeDevice struct {
	Node string `json:"node"`
	nodeclient.Device
}

// ListDevices prints the devices of every node. It returns an error if nodes could not be queried.
func ListDevices(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string) error {
	answers, err := remote.Each(ctx, cluster, func(ctx context.Context, node string) ([]nodeclient.Device, error) {
		var devices []nodeclient.Device
		err := cluster.Decode(ctx, node, &devices, "devices", "--output=json")
		return devices, err
	})
	if err != nil {
		return err
	}
	list := []nodeDevice{}
	for i := range answers {
		for _, device := range answers[i].Answer {
			list = append(list, nodeDevice{answers[i].Node, device})
		}
	}
	columns := []printer.Column[nodeDevice]{{Title: "NODE", Value: func(d *nodeDevice) string { return d.Node }}}
	for _, column := range nodeclient.DeviceColumns() {
		columns = append(columns, printer.Column[nodeDevice]{Title: column.Title, Wide: column.Wide,
			Value: func(d *nodeDevice) string { return column.Value(&d.Device) }})
	}
	if err := printer.List(streams.Out, form, list, columns, "no node offers a device"); err != nil {
		return err
	}
	return failures(streams, answers)
}

// failures prints the errors of nodes that could not be queried. If there are any, the list is incomplete, and it
// returns exit status 2.
func failures[T any](streams printer.Streams, answers []remote.Of[T]) error {
	code := 0
	for i := range answers {
		if answers[i].Err != nil {
			printer.New(streams.Err).Bad("%v", answers[i].Err)
			code = 2
		}
	}
	return remote.Status(code)
}
