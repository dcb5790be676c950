// Package picture shows the steps of a topology and their dependencies.
//
// The rule of this package: it does no I/O, and the same topology always yields the same picture.
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

// Rows returns the steps of a valid topology as a table, in the order of execution.
func Rows(topology *v1alpha1.NetworkTopology) [][]string {
	rows := [][]string{{"STEP", "CNI PLUGIN", "AFTER", "DEVICE CLASS"}}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		rows = append(rows, []string{step.Name, step.Type, cmp.Or(strings.Join(step.DependOn, ", "), "-"),
			cmp.Or(class(topology, step), "-")})
	}
	return rows
}

// class returns the DeviceClass of a root step, or "".
func class(topology *v1alpha1.NetworkTopology, step *v1alpha1.Step) string {
	if len(step.DependOn) > 0 {
		return ""
	}
	return v1alpha1.ClassName(topology.Name, step.Name)
}

// Draw returns the graph of a valid topology in one of the formats except FormatText. Names contain no quotes. In
// Mermaid, numbers identify the steps, since step names may be keywords.
func Draw(topology *v1alpha1.NetworkTopology, format string) string {
	head, box, arrow, lineBreak, foot := "flowchart TD\n", "  %s[\"%s\"]\n", "  %s --> %s\n", "<br/>", ""
	if format == FormatDOT {
		head = fmt.Sprintf("digraph %q {\n  rankdir=TB;\n  node [shape=box, style=rounded];\n", topology.Name)
		box, arrow, lineBreak, foot = "  %s [label=\"%s\"];\n", "  %s -> %s;\n", `\n`, "}\n"
	}
	var boxes, arrows strings.Builder
	ids := map[string]string{} // by step
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		ids[step.Name] = fmt.Sprintf("s%d", i)
		if format == FormatDOT {
			ids[step.Name] = fmt.Sprintf("%q", step.Name)
		}
		lines := []string{step.Name, step.Type}
		if name := class(topology, step); name != "" {
			lines = append(lines, name)
		}
		fmt.Fprintf(&boxes, box, ids[step.Name], strings.Join(lines, lineBreak))
		for _, parent := range step.DependOn {
			fmt.Fprintf(&arrows, arrow, ids[parent], ids[step.Name])
		}
	}
	return head + boxes.String() + arrows.String() + foot
}
