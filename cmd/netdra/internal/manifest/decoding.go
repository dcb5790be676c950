package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// problem describes an invalid value in a document. The value is identified by its node or, if node is nil, by its
// path.
type problem struct {
	path, text string
	node       *yaml.Node
}

// Error implements error.
func (p problem) Error() string { return p.text }

// At returns the position of an error as FILE:LINE, or the position of the document if [DecodeStrict] has not recorded
// one.
func (d *Document) At(err error) string {
	var found problem
	switch {
	case !errors.As(err, &found):
		return d.Location()
	case found.node != nil:
		return d.place(found.node)
	}
	return d.Position(found.path)
}

// Located prefixes each problem with its position.
func (d *Document) Located(problems []error) []error {
	placed := make([]error, len(problems))
	for i, problem := range problems {
		placed[i] = fmt.Errorf("%s: %w", d.At(problem), problem)
	}
	return placed
}

// Patterns that match errors from packages yaml and json.
var (
	duplicateKey = regexp.MustCompile(`key "[^"]+" already set in map`)
	unknownField = regexp.MustCompile(`^unknown field "([^"]+)"$`)
)

// explainDecodeError explains in terms of YAML why a document cannot be decoded. Errors that it does not recognize are
// returned unchanged. It parses the messages from packages json and yaml; if a new version of these packages changes
// them, the explanation becomes less helpful but never wrong.
func (d *Document) explainDecodeError(err error) []error {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		found, _ := describeMistyped(mistyped, d.node)
		return []error{found}
	}
	if found := duplicates(d.node); duplicateKey.MatchString(err.Error()) && len(found) > 0 {
		return found
	}
	match := unknownField.FindStringSubmatch(err.Error())
	if match == nil {
		if problems := badQuantities(d.node, "", false); len(problems) > 0 {
			return problems
		}
		return []error{err}
	}
	return []error{problem{path: match[1], text: err.Error()}}
}

func duplicates(node *yaml.Node) (problems []error) {
	seen := map[string]bool{}
	for i, inner := range node.Content {
		if isKey := node.Kind == yaml.MappingNode && i%2 == 0; isKey && seen[inner.Value] {
			problems = append(problems, problem{node: inner, text: fmt.Sprintf("the field %q is set twice", inner.Value)})
		} else if isKey {
			seen[inner.Value] = true
		}
		problems = append(problems, duplicates(inner)...)
	}
	return problems
}

// mostMistyped is the maximum number of values per document that are reported to have the wrong type.
const mostMistyped = 50

// decodeAll decodes a document. Package json stops at the first error, so if a value has the wrong type, decodeAll
// replaces it with null, which every type accepts, and decodes the document again. It returns an error for each such
// value, and the error from the last attempt.
func (d *Document) decodeAll(decode func(document []byte) error) (mistypedValues []error, last error) {
	var root yaml.Node
	document, unread := d.Data, yaml.Unmarshal(d.Data, &root)
	for {
		err := decode(document)
		var mistyped *json.UnmarshalTypeError
		if len(mistypedValues) == mostMistyped || !errors.As(err, &mistyped) || unread != nil {
			return mistypedValues, err
		}
		found, value := describeMistyped(mistyped, root.Content[0])
		if value == nil {
			return mistypedValues, err
		}
		*value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		mistypedValues = append(mistypedValues, found)
		if document, unread = yaml.Marshal(&root); unread != nil {
			return mistypedValues, err
		}
	}
}

// badQuantities finds invalid quantities in capacities. The decoding error does not include their paths.
func badQuantities(node *yaml.Node, path string, ofCapacity bool) (problems []error) {
	for i, inner := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode:
			problems = append(problems, badQuantities(inner, fmt.Sprintf("%s[%d]", path, i), ofCapacity)...)
		case i%2 == 1: // the value for a key
			name := node.Content[i-1].Value
			problems = append(problems, badQuantities(inner, strings.TrimPrefix(path+"."+name, "."),
				ofCapacity || name == "capacity")...)
		}
	}
	if !ofCapacity || node.ShortTag() != "!!str" {
		return problems
	}
	if _, err := resource.ParseQuantity(node.Value); err != nil {
		problems = append(problems, problem{path: path, text: fmt.Sprintf("%s: %q is not a quantity: use a number, "+
			"such as 8, 100M or 1Gi", path, node.Value)})
	}
	return problems
}

// describeMistyped describes a value of the wrong type: its path in the object, and the actual and the expected type.
// It also returns the value, or nil if it cannot find the value.
func describeMistyped(mistyped *json.UnmarshalTypeError, object *yaml.Node) (found problem, value *yaml.Node) {
	actual, _, _ := strings.Cut(mistyped.Value, " ") // without the number
	names := map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list",
		"object": "an object"}
	path, value := locate(object, strings.Split(mistyped.Field, "."), actual)
	path = strings.TrimPrefix(path, ".")
	if value == nil {
		path = mistyped.Field
	}
	return problem{path: path, text: fmt.Sprintf("%s: is %s, must be %s", path, cmp.Or(names[actual], actual),
		expectedType(mistyped.Type))}, value
}

// locate follows fields and returns the first value of type actual, and the path to it; nil if there is none.
func locate(node *yaml.Node, fields []string, actual string) (path string, value *yaml.Node) {
	if node.Kind == yaml.SequenceNode && (len(fields) > 0 || actual != "array") {
		for i, item := range node.Content {
			if rest, value := locate(item, fields, actual); value != nil {
				return fmt.Sprintf("[%d]%s", i, rest), value
			}
		}
		return "", nil
	}
	// Maps YAML tags to the names that package json uses for types.
	types := map[string]string{"!!str": "string", "!!int": "number", "!!float": "number", "!!bool": "bool",
		"!!seq": "array", "!!map": "object"}
	if len(fields) == 0 && types[node.ShortTag()] == actual {
		return "", node
	}
	if len(fields) == 0 {
		return "", nil
	}
	_, inner := child(node, fields[0])
	if inner == nil {
		return "", nil
	}
	path, value = locate(inner, fields[1:], actual)
	return "." + fields[0] + path, value
}

func expectedType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string, in quotes"
	case reflect.Bool:
		return "true or false, without quotes"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number, without quotes"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// Position returns the position of a field, or of its closest existing ancestor, as FILE:LINE.
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

// child returns the value for a key, or the list item with an index, and the node where it starts; nil if it does not
// exist.
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
