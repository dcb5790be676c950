// Package picture draws the steps of a chain and their dependencies.
//
// The rule of this package: no I/O, the same graph always gives the same picture, and all text in a graph is escaped.
package picture

import (
	"fmt"
	"html"
	"strings"
)

// Graph is a graph of steps. The boxes must be in a valid order of execution, because the layout computes the row of a
// box from the rows of earlier boxes.
type Graph struct {
	Title string
	Boxes []Box
}

// Box is one step.
type Box struct {
	// Lines are the text; the first line is the name.
	Lines []string
	// Class is the CSS class. The style sheet of Standalone supports "root".
	Class string
	// After are the indexes of the boxes that this box depends on, all lower than its own index.
	After []int
}

// Sizes of the picture, in pixels.
const (
	boxHeight   = 64
	gapX, gapY  = 28, 48
	margin      = 16
	letterWidth = 7.5 // approximate, depends on the font
	lineHeight  = 18
)

const ownStyle = `<style>
  rect { fill: #f6f8fa; stroke: #57606a } rect.root { stroke: #0969da; stroke-width: 2 } text { fill: #1f2328; text-anchor: middle } .name { font-weight: bold } path { stroke: #57606a; fill: none } marker path { fill: #57606a }
  @media (prefers-color-scheme: dark) { rect { fill: #161b22; stroke: #8b949e } rect.root { stroke: #58a6ff } text { fill: #e6edf3 } path { stroke: #8b949e } marker path { fill: #8b949e } }
</style>
`

// Standalone returns a complete SVG file with colours for light and dark mode.
func (g Graph) Standalone() string {
	places, width, height := g.layout()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="%[3]s" font-family="monospace" font-size="12">
<title>%[3]s</title>
`, width, height, html.EscapeString(g.Title)) + ownStyle + ArrowHead() + "\n" + g.shapes(places) + "</svg>\n"
}

// Inline returns an SVG element for a page that contains ArrowHead and a style sheet for .graph. The id must be unique
// in the page and consist of letters and digits. The description is for screen readers.
func (g Graph) Inline(id, description string) string {
	places, width, height := g.layout()
	return fmt.Sprintf(`<svg class="graph" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" `+
		`aria-labelledby="%[3]st %[3]sd"><title id="%[3]st">%[4]s</title><desc id="%[3]sd">%[5]s</desc>`,
		width, height, id, html.EscapeString(g.Title), html.EscapeString(description)) + g.shapes(places) + "</svg>"
}

// ArrowHead returns the SVG marker at the ends of arrows.
func ArrowHead() string {
	return `<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" ` +
		`orient="auto"><path d="M0 0 8 4 0 8z"/></marker>`
}

// shapes returns the arrows and then the boxes, which cover them.
func (g Graph) shapes(places []place) string {
	var text strings.Builder
	for i, b := range g.Boxes {
		for _, parent := range b.After {
			parentPlace, childPlace := places[parent], places[i]
			fmt.Fprintf(&text, "<path d=\"M%d %d C%[1]d %[2]d %[3]d %[4]d %[3]d %[5]d\" marker-end=\"url(#arrow)\"/>\n",
				parentPlace.x+parentPlace.width/2, parentPlace.y+boxHeight, childPlace.x+childPlace.width/2,
				childPlace.y-gapY/2, childPlace.y)
		}
	}
	for i, b := range g.Boxes {
		class := ""
		if b.Class != "" {
			class = fmt.Sprintf(` class="%s"`, html.EscapeString(b.Class))
		}
		fmt.Fprintf(&text, "<rect%s x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", class, places[i].x,
			places[i].y, places[i].width, boxHeight)
		for j, line := range b.Lines {
			name := ""
			if j == 0 {
				name = ` class="name"`
			}
			fmt.Fprintf(&text, "<text%s x=\"%d\" y=\"%d\">%s</text>\n", name, places[i].x+places[i].width/2,
				places[i].y+boxHeight/2+4+(2*j-len(b.Lines)+1)*lineHeight/2, html.EscapeString(line))
		}
	}
	return text.String()
}

type place struct{ x, y, width int }

// layout assigns boxes to rows by the length of their longest chain of dependencies, and centres each row.
func (g Graph) layout() (places []place, width, height int) {
	places = make([]place, len(g.Boxes))
	layers := make([]int, len(g.Boxes))
	used := map[int]int{} // by layer
	for i, b := range g.Boxes {
		for _, parent := range b.After {
			layers[i] = max(layers[i], layers[parent]+1)
		}
		longest := 0
		for _, line := range b.Lines {
			longest = max(longest, len([]rune(line)))
		}
		layer := layers[i]
		places[i] = place{x: used[layer], y: margin + layer*(boxHeight+gapY), width: int(float64(longest)*letterWidth) +
			2*margin}
		used[layer] += places[i].width + gapX
		width, height = max(width, used[layer]-gapX), max(height, places[i].y+boxHeight)
	}
	for i, layer := range layers {
		places[i].x += margin + (width-used[layer]+gapX)/2
	}
	return places, width + 2*margin, height + margin
}
