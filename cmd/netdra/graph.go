package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Formats of a graph.
const (
	graphText    = "text"
	graphDOT     = "dot"
	graphMermaid = "mermaid"
	graphSVG     = "svg"
)

func graphFormats() []string { return []string{graphText, graphDOT, graphMermaid, graphSVG} }

func graphCommand(to console) *cobra.Command {
	source := topologySource{}
	var format string
	cmd := &cobra.Command{
		Use:   "graph TOPOLOGY",
		Short: "Draw the graph of a topology",
		Long: `graph draws the steps of a NetworkTopology and what depends on what: as a table, for Graphviz (dot), for Mermaid, which
GitHub and GitLab show in Markdown, or as a picture (svg). Root steps are named with the DeviceClass that a claim asks for.
A topology with problems is not drawn; they are printed as by "chain validate".`,
		Example: `  netdra chain graph topology.yaml
  netdra chain graph deploy/samples/topologies.yaml --name macvlan-tuned --format mermaid
  netdra chain graph topology.yaml --format svg > topology.svg
  netdra chain graph topology.yaml --format dot | dot -Tpng > topology.png`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			source.file = args[0]
			if !slices.Contains(graphFormats(), format) {
				return fmt.Errorf("--format %q: use %s", format, strings.Join(graphFormats(), ", "))
			}
			topology, _, err := source.load(to.in)
			if err != nil {
				return err
			}
			drawing := drawingOf(topology)
			if format == graphText {
				drawing.table(newPrinter(to.out))
				return nil
			}
			_, err = fmt.Fprint(to.out, map[string]func() string{graphDOT: drawing.dot, graphMermaid: drawing.mermaid, graphSVG: drawing.svg}[format]())
			return err
		},
	}
	nameFlag(cmd, &source.name)
	schemasFlag(cmd, &source.schemas)
	cmd.Flags().StringVar(&format, "format", graphText, "what to draw for: text, dot, mermaid or svg")
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(graphFormats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// drawing is a topology as a graph. Steps stand in the order in which they are run.
type drawing struct {
	name  string
	boxes []box
}

type box struct {
	step, cniType string
	class         string // of a root step
	after         []int
	layer         int // how many steps stand before it at least, one after the other
}

func drawingOf(topology *v1alpha1.NetworkTopology) drawing {
	d := drawing{name: topology.Name}
	index := map[string]int{}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		b := box{step: step.Name, cniType: step.Type}
		if len(step.DependOn) == 0 {
			b.class = v1alpha1.ClassName(topology.Name, step.Name)
		}
		for _, parent := range step.DependOn {
			b.after = append(b.after, index[parent])
			b.layer = max(b.layer, d.boxes[index[parent]].layer+1)
		}
		index[step.Name] = i
		d.boxes = append(d.boxes, b)
	}
	return d
}

func (d drawing) table(out *printer) {
	rows := [][]string{{"STEP", "CNI PLUGIN", "AFTER", "DEVICE CLASS"}}
	for _, b := range d.boxes {
		var after []string
		for _, i := range b.after {
			after = append(after, d.boxes[i].step)
		}
		rows = append(rows, []string{strings.Repeat("  ", b.layer) + b.step, b.cniType, orDefault(strings.Join(after, ", "), "-"), orDefault(b.class, "-")})
	}
	out.table(rows)
}

// dot is the language of Graphviz. Names of steps and plugins have no quotes in them.
func (d drawing) dot() string {
	var text strings.Builder
	fmt.Fprintf(&text, "digraph %q {\n  rankdir=TB;\n  node [shape=box, style=rounded];\n", d.name)
	for _, b := range d.boxes {
		fmt.Fprintf(&text, "  %q [label=\"%s\"];\n", b.step, strings.Join(b.lines(), `\n`))
	}
	for _, b := range d.boxes {
		for _, i := range b.after {
			fmt.Fprintf(&text, "  %q -> %q;\n", d.boxes[i].step, b.step)
		}
	}
	return text.String() + "}\n"
}

// mermaid is a flowchart. Its identifiers are numbers, since some names of steps are words of its language.
func (d drawing) mermaid() string {
	var text strings.Builder
	text.WriteString("flowchart TD\n")
	for i, b := range d.boxes {
		fmt.Fprintf(&text, "  s%d[\"%s\"]\n", i, strings.Join(b.lines(), "<br/>"))
	}
	for i, b := range d.boxes {
		for _, parent := range b.after {
			fmt.Fprintf(&text, "  s%d --> s%d\n", parent, i)
		}
	}
	return text.String()
}

// lines are what is written in a box.
func (b box) lines() []string {
	lines := []string{b.step, b.cniType}
	if b.class != "" {
		lines = append(lines, b.class)
	}
	return lines
}

// svg is a picture in colours for light and dark pages.
func (d drawing) svg() string {
	graph := picture.Graph{Title: "topology " + d.name}
	for _, b := range d.boxes {
		class := ""
		if b.class != "" {
			class = "root"
		}
		graph.Boxes = append(graph.Boxes, picture.Box{Lines: b.lines(), Class: class, After: b.after})
	}
	return graph.Standalone()
}
