// Package picture draws graphs of steps as SVG: what is run after what.
//
// The rule of this package: no I/O, the same graph gives the same picture, and no text of a graph is ever markup.
package picture

import (
	"fmt"
	"html"
	"strings"
)

// Graph is what is drawn. Boxes stand in an order in which they could be run. The layout relies on that: the row of a
// box follows from the rows of those before it.
type Graph struct {
	Title string
	Boxes []Box
}

// Box is one step.
type Box struct {
	// Lines are what is written in it; the first one is its name.
	Lines []string
	// Class is for style sheets; those of Standalone know "root".
	Class string
	// After are the indexes of the boxes that it stands below: all lower than its own.
	After []int
}

// Sizes of the picture, in pixels.
const (
	boxHeight   = 64
	gapX, gapY  = 28, 48
	margin      = 16
	letterWidth = 7.5 // of the font, more or less
	lineHeight  = 18
)

const ownStyle = `<style>
  rect { fill: #f6f8fa; stroke: #57606a } rect.root { stroke: #0969da; stroke-width: 2 } text { fill: #1f2328; text-anchor: middle } .name { font-weight: bold } path { stroke: #57606a; fill: none } marker path { fill: #57606a }
  @media (prefers-color-scheme: dark) { rect { fill: #161b22; stroke: #8b949e } rect.root { stroke: #58a6ff } text { fill: #e6edf3 } path { stroke: #8b949e } marker path { fill: #8b949e } }
</style>
`

// Standalone is a file of its own, in colours for light and dark pages.
func (g Graph) Standalone() string {
	places, width, height := g.layout()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="%[3]s" font-family="monospace" font-size="12">
<title>%[3]s</title>
`, width, height, html.EscapeString(g.Title)) + ownStyle + ArrowHead() + "\n" + g.shapes(places) + "</svg>\n"
}

// Inline is a part of a page that has an ArrowHead and a style sheet for .graph. The id must be unique in the page,
// and of letters and digits; the description is for who cannot see the picture.
func (g Graph) Inline(id, description string) string {
	places, width, height := g.layout()
	return fmt.Sprintf(`<svg class="graph" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" `+
		`aria-labelledby="%[3]st %[3]sd"><title id="%[3]st">%[4]s</title><desc id="%[3]sd">%[5]s</desc>`,
		width, height, id, html.EscapeString(g.Title), html.EscapeString(description)) + g.shapes(places) + "</svg>"
}

// ArrowHead is what arrows have at their ends.
func ArrowHead() string {
	return `<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" ` +
		`orient="auto"><path d="M0 0 8 4 0 8z"/></marker>`
}

// shapes are arrows, and then boxes over them.
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

// layout puts boxes in rows, by how many stand above them at least, one after the other; each row is in the middle.
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
