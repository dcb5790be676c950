package manifest

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// A problem is reported at its own position, and a missing field at the position of its parent.
func TestPlaceOfAField(t *testing.T) {
	var root yaml.Node
	err := yaml.Unmarshal([]byte(`

a: &list
- b: 1
  c:
    d.e/f: 2
- {b: 3}
g: *list
h: text
`), &root)
	if err != nil {
		t.Fatal(err)
	}
	found := &Document{file: "f", node: root.Content[0]}
	for field, want := range map[string]string{
		"":            "f:3",
		"a":           "f:3",
		"a[0].b":      "f:4",
		"a[0].c.x.y":  "f:5",
		"a[1].b":      "f:7",
		"a[2].b":      "f:3",
		"g[1].b":      "f:7",
		"h.x":         "f:9",
		"nothing":     "f:3",
		"metadata[x]": "f:3",
	} {
		if got := found.Position(field); got != want {
			t.Errorf("%s is at %s, want %s", field, got, want)
		}
	}
}
