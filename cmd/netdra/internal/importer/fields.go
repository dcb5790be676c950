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
	// Location is the location of the document, as FILE:LINE.
	Location string `json:"location"`
	// Object is the object's kind and name.
	Object string `json:"object"`
	// Field is the path of the field. If the field is inside a JSON string, its path in the string follows a colon.
	Field string `json:"field,omitempty"`
	// Value is the value as JSON, truncated.
	Value string `json:"value,omitempty"`
	// Action is true if the user has to act, and false if the field is no longer needed.
	Action bool `json:"action"`
	// Reason states the reason for the finding and the required action.
	Reason string `json:"reason"`

	order int // the object's position in the input
}

// source is the input object that a finding refers to. order allows sorting findings in input order, although objects
// are read in several passes.
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

// maxValue is the maximum number of characters shown for a value.
const maxValue = 60

// shorten formats a value for one line in a report. It truncates at a character boundary, not at a byte.
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

// fields contains the fields of one input object. Reading a field marks it; close reports unread fields. A child is
// closed with its parent; an object inside a string is also a child. fields is not safe for concurrent use.
type fields struct {
	*source
	path     string // with a separator at the end, or empty
	values   map[string]any
	read     map[string]bool
	children []*fields
	mistyped bool // a value was not read because it has the wrong type
}

func newFields(s *source, path string, values map[string]any) *fields {
	return &fields{source: s, path: path, values: values, read: map[string]bool{}}
}

// whole returns the object's own path.
func (f *fields) whole() string { return strings.TrimRight(f.path, ".: ") }

// pop returns a value and marks it as read; nil if it does not exist. Like encoding/json in the programs that read this
// configuration, it ignores the case of keys, because a selector that is not read would widen a policy. An exact match
// takes precedence, followed by the first key in sorted order.
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

// wrong reports a value of the wrong type.
func (f *fields) wrong(path string, value any, want string) {
	f.mistyped = true
	f.add(true, path, value, "is not %s, so it was not read: fix it", want)
}

// typed returns a value of type T; a value of another type is reported as a finding. YAML decodes all numbers as
// float64.
func typed[T any](f *fields, key, want string) T {
	value := f.pop(key)
	result, matches := value.(T)
	if value != nil && !matches {
		f.wrong(f.path+key, value, want)
	}
	return result
}

// elements calls do with the path and the value of each item in a list, and reports items that are not of type T. A
// single value is treated as a list with one element.
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

// child returns the fields of a nested object. If the object does not exist, the result has no fields.
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

// note reports a nonempty field as no longer needed.
func (f *fields) note(key, reason string) { f.record(false, key, reason) }

func (f *fields) record(action bool, key, reason string) {
	if value := f.pop(key); !isEmpty(value) {
		f.add(action, f.path+key, value, "%s", reason)
	}
}

// without reports the nonempty fields that have no equivalent; see equivalents.yaml for the objects and their fields.
func (f *fields) without(object string) {
	for _, key := range sortedKeys(known().Without[object]) {
		f.record(true, key, known().Without[object][key])
	}
	for _, key := range sortedKeys(known().Unneeded[object]) {
		f.note(key, known().Unneeded[object][key])
	}
}

// isEmpty reports whether a value is equivalent to a missing field.
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

// ignore marks fields that are not translated, such as those that the API server sets, as read.
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

// restricts returns the terms for a selector, and adds the term never if the selector contains unknown fields or values
// of the wrong type.
//
// It must be called after all known fields in the selector have been read. A policy that ignores a restriction would
// offer devices that the original does not.
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

// nothing adds the term never to a policy's terms, so that the policy selects no device: an unread value might restrict
// the selection.
func (f *fields) nothing(terms []string) []string {
	f.add(true, f.whole(), nil, "has a value that was not read, so the policy selects nothing: fix it and import it "+
		"again, or remove %q from its selector", never)
	return append(terms, never)
}

// decodeJSON decodes JSON in a string. A duplicate key is an error, because some programs use the last value, and
// others use the first.
func decodeJSON[T any](text string) (value T, err error) {
	strict, err := kjson.UnmarshalStrict([]byte(text), &value, kjson.DisallowDuplicateFields)
	return value, errors.Join(append(strict, err)...)
}
