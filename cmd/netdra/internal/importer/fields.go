package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Finding describes an input field that could not be translated directly.
type Finding struct {
	// Location is the position of the document, as FILE:LINE.
	Location string `json:"location"`
	// Object is the kind and name of the object.
	Object string `json:"object"`
	// Field is the path of the field. If the field is inside a JSON string, the path of the string is followed by a
	// colon and the path within the string.
	Field string `json:"field,omitempty"`
	// Value is the value as JSON, possibly truncated.
	Value string `json:"value,omitempty"`
	// Action is true if the user has to take action, and false if the field is no longer needed.
	Action bool `json:"action"`
	// Reason explains the finding and, if applicable, the required action.
	Reason string `json:"reason"`

	order int // the position of the object in the input
}

// source is the input object to which findings refer. order makes it possible to sort findings in input order, because
// objects are read in several passes.
type source struct {
	location, object string
	order            int
	findings         *[]Finding
}

func (s *source) add(action bool, field string, value any, format string, arguments ...any) {
	*s.findings = append(*s.findings, Finding{Location: s.location, Object: s.object, Field: field,
		order: s.order,
		Value: shorten(value), Action: action, Reason: fmt.Sprintf(format, arguments...)})
}

// maxValue is the maximum number of characters of a value that are shown.
const maxValue = 60

// shorten formats a value for a single line in a report. It truncates long values between characters, not within a
// multi-byte character.
func shorten(value any) string {
	if value == nil {
		return ""
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if characters := []rune(string(encoded)); len(characters) > maxValue {
		return string(characters[:maxValue]) + "…"
	}
	return string(encoded)
}

// fields contains the fields of one input object. Reading a field marks it as read, and close reports unread fields.
// Closing an object also closes its children, which include objects inside strings. fields is not safe for concurrent
// use.
type fields struct {
	*source
	path     string // ends with a separator unless empty
	values   map[string]any
	read     map[string]bool
	children []*fields
	mistyped bool // a value was not read because it has the wrong type
}

func newFields(s *source, path string, values map[string]any) *fields {
	return &fields{source: s, path: path, values: values, read: map[string]bool{}}
}

// whole returns the path of the object itself.
func (f *fields) whole() string { return strings.TrimRight(f.path, ".: ") }

// pop returns a value and marks it as read; nil if it does not exist. It ignores the case of keys, as do the programs
// that read this configuration with encoding/json; overlooking a selector would make a policy too broad. An exact match
// takes precedence, followed by the first match in sorted order.
func (f *fields) pop(key string) any {
	if value, found := f.values[key]; found {
		f.read[key] = true
		return value
	}
	for _, candidate := range slices.Sorted(maps.Keys(f.values)) {
		if strings.EqualFold(candidate, key) && !f.read[candidate] {
			f.read[candidate] = true
			return f.values[candidate]
		}
	}
	return nil
}

// wrong reports a value that has the wrong type.
func (f *fields) wrong(path string, value any, want string) {
	f.mistyped = true
	f.add(true, path, value, "is not %s, so it was not read: fix it", want)
}

// typed returns a value of type T. A value of another type is reported as a finding. YAML decodes all numbers as
// float64.
func typed[T any](f *fields, key, want string) T {
	value := f.pop(key)
	result, matches := value.(T)
	if value != nil && !matches {
		f.wrong(f.path+key, value, want)
	}
	return result
}

// elements calls do with the path and the value of each list item, and reports items that are not of type T. A single
// value is treated as a list with one item.
func elements[T any](f *fields, key, wantList, want string, do func(path string, value T)) {
	value := f.pop(key)
	if single, matches := value.(T); matches {
		do(f.path+key, single)
		return
	}
	list, isList := value.([]any)
	if value != nil && !isList {
		f.wrong(f.path+key, value, wantList)
	}
	for i, item := range list {
		path := fmt.Sprintf("%s%s[%d]", f.path, key, i)
		if element, matches := item.(T); matches {
			do(path, element)
		} else {
			f.wrong(path, item, want)
		}
	}
}

func (f *fields) text(key string) string { return typed[string](f, key, "a string") }

func (f *fields) flag(key string) bool { return typed[bool](f, key, "true or false") }

func (f *fields) number(key string) float64 { return typed[float64](f, key, "a number") }

// texts returns a list of strings.
func (f *fields) texts(key string) (texts []string) {
	elements(f, key, "a list of strings", "a string", func(_ string, text string) { texts = append(texts, text) })
	return texts
}

// child returns the fields of a nested object. If the object does not exist, the result is empty.
func (f *fields) child(key string) *fields {
	return f.adopt(f.path+key+".", typed[map[string]any](f, key, "an object"))
}

// list returns the objects in a list.
func (f *fields) list(key string) (all []*fields) {
	elements(f, key, "a list", "an object", func(path string, object map[string]any) {
		all = append(all, f.adopt(path+".", object))
	})
	return all
}

func (f *fields) adopt(path string, values map[string]any) *fields {
	child := newFields(f.source, path, values)
	f.children = append(f.children, child)
	return child
}

// note reports a nonempty field that is no longer needed.
func (f *fields) note(key, reason string) { f.record(false, key, reason) }

func (f *fields) record(action bool, key, reason string) {
	if value := f.pop(key); !isEmpty(value) {
		f.add(action, f.path+key, value, "%s", reason)
	}
}

// without reports nonempty fields that have no equivalent. equivalents.yaml lists these fields by object.
func (f *fields) without(object string) {
	for _, key := range sortedKeys(known().Without[object]) {
		f.record(true, key, known().Without[object][key])
	}
	for _, key := range sortedKeys(known().Unneeded[object]) {
		f.note(key, known().Unneeded[object][key])
	}
}

// isEmpty reports whether a value has the same meaning as a missing field.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case float64:
		return v == 0
	case int64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// ignore marks fields that are not translated as read, such as those set by the API server.
func (f *fields) ignore(keys ...string) {
	for _, key := range keys {
		f.pop(key)
	}
}

// close reports every unread field.
func (f *fields) close() {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[key] {
			f.add(true, f.path+key, f.values[key], "the field is unknown and was not translated: check whether you "+
				"need it")
		}
	}
	for _, child := range f.children {
		child.close()
	}
}

// restricts returns the terms for a selector. If the selector contains unknown fields or values of the wrong type, it
// adds the term never.
//
// It must be called after all known fields in the selector have been read. A policy that ignored a restriction would
// offer devices that the original does not offer.
func (f *fields) restricts(terms []string) []string {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[key] {
			f.pop(key)
			f.mistyped = true
			f.add(true, f.path+key, f.values[key], "the selector is unknown, so the policy selects nothing: replace "+
				"%q in its selector with an expression for these devices, or with true", never)
		}
	}
	if f.mistyped {
		terms = append(terms, never)
	}
	return terms
}

// nothing adds the term never to a policy's terms, so that the policy selects no devices. It is used if an unread value
// might have restricted the selection.
func (f *fields) nothing(terms []string) []string {
	f.add(true, f.whole(), nil, "has a value that was not read, so the policy selects nothing: fix it and import it "+
		"again, or remove %q from its selector", never)
	return append(terms, never)
}

// decodeJSON decodes JSON from a string. Duplicate keys are an error, because some programs use the last value and
// others use the first.
func decodeJSON[T any](text string) (value T, err error) {
	strict, err := kjson.UnmarshalStrict([]byte(text), &value, kjson.DisallowDuplicateFields)
	return value, errors.Join(append(strict, err)...)
}
