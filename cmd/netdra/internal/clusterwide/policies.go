package clusterwide

import (
	"context"
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// nodeEffect is the effect of a policy on one node.
type nodeEffect struct {
	Node string `json:"node"`
	offers.PolicyEffect
}

// ListPolicies prints the effects of the named policies on every node, or of all policies if no names are given. It
// returns an error if any node could not be queried. The double dash prevents policy names from being parsed as flags
// on the node.
func ListPolicies(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string,
	names []string) error {
	line := append([]string{"policies", "list", "--output=json", "--"}, names...)
	answers, err := remote.Each(ctx, cluster, func(ctx context.Context, node string) ([]offers.PolicyEffect, error) {
		var effects []offers.PolicyEffect
		err := cluster.Decode(ctx, node, &effects, line...)
		return effects, err
	})
	if err != nil {
		return err
	}
	list, effects := []nodeEffect{}, []offers.PolicyEffect{}
	for i := range answers {
		for _, effect := range answers[i].Answer {
			list = append(list, nodeEffect{answers[i].Node, effect})
			effect.Meant = slices.Clone(effect.Meant)
			for j := range effect.Meant {
				effect.Meant[j] = fmt.Sprintf("on node %s %s", answers[i].Node, effect.Meant[j])
			}
			effects = append(effects, effect)
		}
	}
	columns := []printer.Column[nodeEffect]{{Title: "NODE", Value: func(e *nodeEffect) string { return e.Node }}}
	for _, column := range offers.EffectColumns() {
		columns = append(columns, printer.Column[nodeEffect]{Title: column.Title, Wide: column.Wide,
			Value: func(e *nodeEffect) string { return column.Value(&e.PolicyEffect) }})
	}
	if err := printer.List(streams.Out, form, list, columns, "the cluster has no DeviceExposurePolicy"); err != nil {
		return err
	}
	if form == printer.FormTable || form == printer.FormWide {
		for i := range answers {
			offers.WarnOfUnusable(printer.New(streams.Out), answers[i].Node, answers[i].Answer)
		}
		offers.WarnOfIdle(printer.New(streams.Out), "the nodes that answered", effects)
	}
	return failures(streams, answers)
}
