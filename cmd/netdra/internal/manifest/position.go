package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Position returns the position of a field, or of its last existing parent, as FILE:LINE. Lines need no offset, since
// every document starts with an empty line for each line before it.
func (d *Document) Position(field string) string {
	var root yaml.Node
	if err := yaml.Unmarshal(d.Data, &root); err != nil || len(root.Content) == 0 {
		return d.Location()
	}
	line := d.line
	for node, rest := root.Content[0], fieldParts(field); len(rest) > 0 && node != nil; rest = rest[1:] {
		key, value := child(node, rest[0])
		if key != nil {
			line = key.Line
		}
		node = value
	}
	return fmt.Sprintf("%s:%d", d.file, line)
}

var fieldPart = regexp.MustCompile(`[^.[\]]+`)

// fieldParts splits spec.steps[1].config into its keys and indexes.
func fieldParts(field string) []string { return fieldPart.FindAllString(field, -1) }

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
