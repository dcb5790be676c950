// Package picture shows the steps of a topology and their dependencies.
//
// The rule of this package: no I/O, and the same topology always gives the same picture.
package picture

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Output formats for a graph.
const (
	FormatText    = "text"
	FormatDOT     = "dot"
	FormatMermaid = "mermaid"
)

// Formats returns the values of --output.
func Formats() []string { return []string{FormatText, FormatDOT, FormatMermaid} }

// Topology is the graph of a topology. Steps are in the order of execution.
type Topology struct {
	name  string
	boxes []topologyStep
}

type topologyStep struct {
	step, cniType string
	class         string // of a root step
	after         []int
}

// OfTopology returns the graph of a valid topology. One pass is sufficient, because in a valid topology, steps come
// after the steps that they depend on.
func OfTopology(topology *v1alpha1.NetworkTopology) Topology {
	d := Topology{name: topology.Name}
	index := map[string]int{}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		b := topologyStep{step: step.Name, cniType: step.Type}
		if len(step.DependOn) == 0 {
			b.class = v1alpha1.ClassName(topology.Name, step.Name)
		}
		for _, parent := range step.DependOn {
			b.after = append(b.after, index[parent])
		}
		index[step.Name] = i
		d.boxes = append(d.boxes, b)
	}
	return d
}

// Rows returns the graph as a table.
func (d Topology) Rows() [][]string {
	rows := [][]string{{"STEP", "CNI PLUGIN", "AFTER", "DEVICE CLASS"}}
	for _, b := range d.boxes {
		var after []string
		for _, i := range b.after {
			after = append(after, d.boxes[i].step)
		}
		rows = append(rows, []string{b.step, b.cniType, cmp.Or(strings.Join(after, ", "), "-"), cmp.Or(b.class, "-")})
	}
	return rows
}

// Draw returns the graph in one of the formats except FormatText.
func (d Topology) Draw(format string) string {
	if format == FormatDOT {
		return d.dot()
	}
	return d.mermaid()
}

// dot returns the graph for Graphviz. Step and plugin names contain no quotes.
func (d Topology) dot() string {
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

// mermaid returns a flowchart. It uses numbers as identifiers, since step names may be Mermaid keywords.
func (d Topology) mermaid() string {
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

// lines returns the text in a box.
func (b topologyStep) lines() []string {
	lines := []string{b.step, b.cniType}
	if b.class != "" {
		lines = append(lines, b.class)
	}
	return lines
}
