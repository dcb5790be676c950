// Package clusterwide prints answers from the drivers on several nodes.
//
// Invariant: it queries nodes only through [remote], which returns the JSON output of netdra commands.
//
// The answers are decoded into the types used by the command that runs on the node. These types are therefore an
// interface between different versions of netdra: fields may be added, but the meaning of existing fields must not
// change.
package clusterwide

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// onNode is an item from a node's answer, together with the node.
type onNode[T any] struct {
	node string
	item T
}

// MarshalJSON encodes the item with an additional field for the node. The item must be encoded as an object with at
// least one field.
func (o onNode[T]) MarshalJSON() ([]byte, error) {
	node, nodeErr := json.Marshal(o.node)
	item, err := json.Marshal(o.item)
	if err = cmp.Or(nodeErr, err); err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"node":`), node, []byte{','}, item[1:]), nil
}

func flatten[T any](answers []remote.Of[[]T]) []onNode[T] {
	all := []onNode[T]{}
	for i := range answers {
		for _, item := range answers[i].Answer {
			all = append(all, onNode[T]{answers[i].Node, item})
		}
	}
	return all
}

// list prints the items from all nodes as a single list. none is the text printed for an empty list.
func list[T any](streams printer.Streams, form string, answers []remote.Of[[]T], columns []printer.Column[T],
	none string) error {
	all := []printer.Column[onNode[T]]{{Title: "NODE", Value: func(o *onNode[T]) string { return o.node }}}
	for _, column := range columns {
		all = append(all, printer.Column[onNode[T]]{Title: column.Title, Wide: column.Wide,
			Value: func(o *onNode[T]) string { return column.Value(&o.item) }})
	}
	return printer.List(streams.Out, form, flatten(answers), all, none)
}

// failures prints the errors for nodes that could not be queried. If there are any, it returns an error, because the
// list is incomplete.
func failures[T any](streams printer.Streams, answers []remote.Of[T]) error {
	code := exit.OK
	for i := range answers {
		if answers[i].Err != nil {
			printer.New(streams.Err).Bad("%v", answers[i].Err)
			code = exit.Refused
		}
	}
	return exit.Status(code)
}

// ListDevices prints the devices on every node. It returns an error if any node could not be queried.
func ListDevices(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string) error {
	answers, err := remote.All[[]nodeclient.Device](ctx, cluster, "devices", "--output=json")
	if err != nil {
		return err
	}
	err = list(streams, form, answers, nodeclient.DeviceColumns(), "no node offers a device")
	return cmp.Or(err, failures(streams, answers))
}

// ListPolicies prints the effects of the named policies on every node. If no names are given, it prints the effects of
// all policies. It returns an error if any node could not be queried. The double dash prevents netdra on the node from
// parsing policy names as flags.
func ListPolicies(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string,
	names []string) error {
	answers, err := remote.All[[]offers.PolicyEffect](ctx, cluster,
		append([]string{"policies", "list", "--output=json", "--"}, names...)...)
	if err != nil {
		return err
	}
	err = list(streams, form, answers, offers.EffectColumns(), "the cluster has no DeviceExposurePolicy")
	return cmp.Or(err, failures(streams, answers))
}

// Doctor prints the findings for one node. The exit status in the error is the same as for "netdra doctor" on the node.
func Doctor(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, node string,
	options *doctor.Options) error {
	var found []doctor.Finding
	if err := cluster.Decode(ctx, node, &found, "doctor", "--output=json"); err != nil {
		return err
	}
	return exit.Check(printer.Show(streams.Out, options.Form, found, func(out *printer.Printer) {
		doctor.PrintFindings(out, found, options.All)
	}), doctor.Count(found, doctor.Fail) > 0)
}

// DoctorAll prints the findings for all nodes, with a heading for each node. The exit status in the error is the worst
// that "netdra doctor" would return for any node. An unreachable node (2) takes precedence over a node with a fault
// (1), since it may have worse faults.
func DoctorAll(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, options *doctor.Options) error {
	answers, err := remote.All[[]doctor.Finding](ctx, cluster, "doctor", "--output=json")
	if err != nil {
		return err
	}
	wrong := false
	for i := range answers {
		wrong = wrong || doctor.Count(answers[i].Answer, doctor.Fail) > 0
	}
	err = printer.Show(streams.Out, options.Form, flatten(answers), func(out *printer.Printer) {
		for i := range answers {
			if i > 0 {
				out.Printf("")
			}
			out.Printf("%s", out.Colour(printer.Dim, "node "+answers[i].Node))
			if answers[i].Err != nil {
				out.Bad("node unreachable")
			} else {
				doctor.PrintFindings(out, answers[i].Answer, options.All)
			}
		}
	})
	return exit.Check(cmp.Or(err, failures(streams, answers)), wrong)
}
