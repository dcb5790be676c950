package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func graph() Graph {
	return Graph{Title: `"<b>"`, Boxes: []Box{
		{Lines: []string{"a", "t-a"}, Class: "root"}, {Lines: []string{"b"}}, {Lines: []string{"a-long-name-of-a-step"},
			After: []int{0, 1}},
		{Lines: []string{`<script>alert("c")</script>`}, After: []int{0}, Class: `"onload="`}, {Lines: []string{"d"},
			After: []int{2, 3}},
	}}
}

// Nothing stands outside of a picture, and boxes do not overlap.
func TestLayout(t *testing.T) {
	g := graph()
	places, width, height := g.layout()
	for i, where := range places {
		if where.x < margin || where.y < margin || where.x+where.width > width-margin ||
			where.y+boxHeight > height-margin {
			t.Errorf("%v is outside: %+v", g.Boxes[i].Lines, where)
		}
		for _, parent := range g.Boxes[i].After {
			if places[parent].y >= where.y {
				t.Errorf("%v is not below what it comes after", g.Boxes[i].Lines)
			}
		}
		for _, other := range places[:i] {
			if where.y == other.y && where.x < other.x+other.width+gapX && other.x < where.x+where.width+gapX {
				t.Errorf("boxes overlap: %+v and %+v", where, other)
			}
		}
	}
}

// Texts are text: pictures are well-formed, and have the elements that we draw and no others.
func TestTextIsNoMarkup(t *testing.T) {
	for name, picture := range map[string]string{"standalone": graph().Standalone(),
		"inline": graph().Inline("g1", "</desc><script>")} {
		decoder := xml.NewDecoder(strings.NewReader(picture))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v:\n%s", name, err, picture)
			}
			element, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if !strings.Contains(" svg title desc style marker path rect text ", " "+element.Name.Local+" ") {
				t.Errorf("%s has the element %s", name, element.Name.Local)
			}
			for _, attribute := range element.Attr {
				if attribute.Name.Local == "onload" {
					t.Errorf("%s: a class has become an attribute", name)
				}
			}
		}
	}
}
