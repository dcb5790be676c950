package manifest

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Position returns the position of a field, or of its last existing parent, as FILE:LINE.
func (d *Document) Position(field string) string {
	deepest := d.node
	for node, rest := d.node, fieldPart.FindAllString(field, -1); len(rest) > 0 && node != nil; rest = rest[1:] {
		key, value := child(node, rest[0])
		if key != nil {
			deepest = key
		}
		node = value
	}
	return d.place(deepest)
}

// fieldPart matches a key or an index in spec.steps[1].config.
var fieldPart = regexp.MustCompile(`[^.[\]]+`)

// child returns the value of a key, or an item of a list, and the node where it starts; nil if it does not exist.
func child(node *yaml.Node, part string) (start, value *yaml.Node) {
	switch node.Kind {
	case yaml.AliasNode:
		return child(node.Alias, part)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == part {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	}
	return nil, nil
}
