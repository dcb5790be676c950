package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// listSuffix is the suffix of list kinds: List, as kubectl writes it, and the list kinds of the API server.
const listSuffix = "List"

// items returns the objects in a list. isList is false for any other document.
func (d *Document) items() (items []Document, isList bool, err error) {
	if !strings.HasSuffix(d.Kind, listSuffix) {
		return nil, false, nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(d.Data, &root); err != nil {
		return nil, true, fmt.Errorf("%s: cannot read the list: %w", d.Location(), err)
	}
	_, list := child(root.Content[0], "items") // there is content, because the kind was read from it
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, false, nil
	}
	lines := strings.Split(string(d.Data), "\n")
	for i, item := range list.Content {
		if item.Kind != yaml.MappingNode {
			return nil, true, fmt.Errorf("%s: items[%d] is not an object", d.Location(), i)
		}
		end := len(lines)
		if i+1 < len(list.Content) {
			end = list.Content[i+1].Line - 1
		}
		text, err := itemText(item, list.Style, lines, end)
		if err != nil {
			return nil, true, fmt.Errorf("%s: cannot read items[%d]: %w", d.Location(), i, err)
		}
		found, err := identify(d.file, part{line: item.Line, text: text})
		if err != nil {
			return nil, true, fmt.Errorf("items[%d] of a list: %w", i, err)
		}
		items = append(items, *found)
	}
	return items, true, nil
}

// itemText returns an item as a separate document with the line numbers of the file. An item in block style is cut out
// of its lines, which are valid YAML without their indentation. Any other item, such as JSON, is encoded again,
// starting on its original line.
func itemText(item *yaml.Node, style yaml.Style, lines []string, end int) (string, error) {
	before := strings.Repeat("\n", item.Line-1)
	if style&yaml.FlowStyle != 0 || item.Style&yaml.FlowStyle != 0 {
		data, err := yaml.Marshal(item)
		return before + string(data), err
	}
	indent := item.Column - 1
	cut := []string{lines[item.Line-1][indent:]}
	for _, line := range lines[item.Line:end] {
		blank := strings.TrimSpace(line) == ""
		if !blank && (len(line) < indent || strings.TrimSpace(line[:indent]) != "") {
			break // the end of the list
		}
		cut = append(cut, line[min(indent, len(line)):])
	}
	return before + strings.Join(cut, "\n") + "\n", nil
}
