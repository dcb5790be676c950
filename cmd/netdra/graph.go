package main

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain"
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
			b.class = cnichain.ClassName(topology.Name, step.Name)
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

// Sizes of the picture, in pixels.
const (
	boxHeight   = 64
	gapX, gapY  = 28, 48
	margin      = 16
	letterWidth = 7.5 // of the font, more or less
	lineHeight  = 18
)

// svg is a picture with a layer of boxes for every step of the longest way, in colours for light and dark pages.
func (d drawing) svg() string {
	places, width, height := d.layout()
	var text strings.Builder
	fmt.Fprintf(&text, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="%[3]s" font-family="monospace" font-size="12">
<title>%[3]s</title>
<style>
  rect { fill: #f6f8fa; stroke: #57606a } rect.root { stroke: #0969da; stroke-width: 2 } text { fill: #1f2328; text-anchor: middle } .name { font-weight: bold } path { stroke: #57606a; fill: none } marker path { fill: #57606a }
  @media (prefers-color-scheme: dark) { rect { fill: #161b22; stroke: #8b949e } rect.root { stroke: #58a6ff } text { fill: #e6edf3 } path { stroke: #8b949e } marker path { fill: #8b949e } }
</style>
<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>
`, width, height, html.EscapeString("topology "+d.name))
	for i, b := range d.boxes {
		for _, parent := range b.after {
			from, to := places[parent], places[i]
			fmt.Fprintf(&text, "<path d=\"M%d %d C%[1]d %[2]d %[3]d %[4]d %[3]d %[5]d\" marker-end=\"url(#arrow)\"/>\n",
				from.x+from.width/2, from.y+boxHeight, to.x+to.width/2, to.y-gapY/2, to.y)
		}
	}
	for i, b := range d.boxes {
		class := ""
		if b.class != "" {
			class = ` class="root"`
		}
		fmt.Fprintf(&text, "<rect%s x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", class, places[i].x, places[i].y, places[i].width, boxHeight)
		lines := b.lines()
		for j, line := range lines {
			name := ""
			if j == 0 {
				name = ` class="name"`
			}
			fmt.Fprintf(&text, "<text%s x=\"%d\" y=\"%d\">%s</text>\n", name, places[i].x+places[i].width/2,
				places[i].y+boxHeight/2+4+(2*j-len(lines)+1)*lineHeight/2, html.EscapeString(line))
		}
	}
	return text.String() + "</svg>\n"
}

type place struct{ x, y, width int }

// layout puts each layer in a row, in the middle.
func (d drawing) layout() (places []place, width, height int) {
	places = make([]place, len(d.boxes))
	used := map[int]int{} // by layer
	for i, b := range d.boxes {
		longest := 0
		for _, line := range b.lines() {
			longest = max(longest, len(line))
		}
		places[i] = place{x: used[b.layer], y: margin + b.layer*(boxHeight+gapY), width: int(float64(longest)*letterWidth) + 2*margin}
		used[b.layer] += places[i].width + gapX
		width, height = max(width, used[b.layer]-gapX), max(height, places[i].y+boxHeight)
	}
	for i, b := range d.boxes {
		places[i].x += margin + (width-used[b.layer]+gapX)/2
	}
	return places, width + 2*margin, height + margin
}
