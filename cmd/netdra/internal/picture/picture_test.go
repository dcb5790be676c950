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

// All boxes are inside the picture and do not overlap.
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
				t.Errorf("%v is not below its dependency", g.Boxes[i].Lines)
			}
		}
		for _, other := range places[:i] {
			if where.y == other.y && where.x < other.x+other.width+gapX && other.x < where.x+where.width+gapX {
				t.Errorf("boxes overlap: %+v and %+v", where, other)
			}
		}
	}
}

// Texts are escaped: pictures are well-formed and only contain expected elements.
func TestTextIsEscaped(t *testing.T) {
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
					t.Errorf("%s: the class adds an attribute", name)
				}
			}
		}
	}
}

// A step continues the lane of one dependency, and lines connect it with the others. Unrelated steps are not drawn
// below each other.
func TestLines(t *testing.T) {
	for name, test := range map[string]struct {
		after [][]int
		want  string
	}{
		"a chain":         {[][]int{nil, {0}, {1}}, "○|○|○"},
		"unrelated":       {[][]int{nil, nil, nil}, "○  |  ○|○  "},
		"two chains":      {[][]int{nil, {0}, nil, {2}}, "○  |○  |  ○|  ○"},
		"a bond":          {[][]int{nil, nil, {0, 1}}, "○  |│ ○|○─┘"},
		"VLANs of a bond": {[][]int{nil, nil, {0, 1}, {2}, {2}, {4}}, "○  |│ ○|○─┘|├─○|○  |○  "},
		"three ports":     {[][]int{nil, nil, nil, {0, 1, 2}}, "○    |│ ○  |│ │ ○|○─┴─┘"},
		"two bonds of interleaved ports": {[][]int{nil, nil, nil, nil, {0, 2}, {1, 3}},
			"○      |│ ○    |│ │ ○  |│ │ │ ○|○─│─┘ │|  ○───┘"},
		"a port with another step":   {[][]int{nil, nil, {0, 1}, {0}}, "○  |│ ○|├─○|○  "},
		"two ports with other steps": {[][]int{nil, nil, {0, 1}, {0}, {1}}, "○    |│ ○  |├─┼─○|○ │  |  ○  "},
	} {
		d := Topology{}
		for _, after := range test.after {
			d.boxes = append(d.boxes, topologyStep{after: after})
		}
		if got := strings.Join(d.lines(), "|"); got != test.want {
			rows := strings.NewReplacer("|", "\n")
			t.Errorf("%s:\n%s\nwant\n%s", name, rows.Replace(got), rows.Replace(test.want))
		}
	}
}
