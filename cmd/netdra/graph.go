package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func graphCommand(streams printer.Streams) *cobra.Command {
	source := manifest.TopologySource{}
	var format string
	cmd := &cobra.Command{
		Use:   "graph TOPOLOGY",
		Short: "Draw the steps of a topology",
		Long: `Use graph to see the order of a topology's steps, or to include a diagram in a document.

It shows the steps and their dependencies: as a table, for Graphviz (dot), or for Mermaid, which GitHub and GitLab
render in Markdown. Root steps show the DeviceClass that a claim requests. If a file has several topologies, the table
form shows all of them unless --name selects one; the other forms require --name. Problems of an invalid topology are
printed as by "chain validate".`,
		Example: `  netdra chain graph topology.yaml
  netdra chain graph deploy/samples/topologies.yaml --name macvlan-tuned -o mermaid
  netdra chain graph topology.yaml -o dot | dot -Tsvg > topology.svg`,
		Args: countArguments(1, 1, "TOPOLOGY", "topology.yaml"),
		RunE: func(_ *cobra.Command, args []string) error {
			source.File = args[0]
			if format == picture.FormatText {
				return printGraphs(streams, &source)
			}
			topology, _, err := source.Load(streams.In)
			if err == nil {
				_, err = fmt.Fprint(streams.Out, picture.Draw(topology, format))
			}
			return err
		},
	}
	nameFlag(cmd, &source.Name)
	schemasFlag(cmd, &source.Schemas)
	outputFlag(cmd, &format, picture.Formats(), picture.FormatText)
	return cmd
}

// printGraphs prints tables of steps for the named topology, or for all topologies in the file. If there are several
// tables, they have headings. Other forms show a single topology.
func printGraphs(streams printer.Streams, source *manifest.TopologySource) error {
	topologies, err := source.LoadAll(streams.In)
	if err != nil {
		return err
	}
	out := printer.New(streams.Out)
	for i, topology := range topologies {
		if i > 0 {
			out.Printf("")
		}
		if len(topologies) > 1 {
			out.Printf("%s", out.Colour(printer.Dim, "topology "+topology.Name))
		}
		out.Table(picture.Rows(topology))
	}
	return nil
}
