package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Finding is a field of the input that the output does not have as it was.
type Finding struct {
	// Location is FILE:LINE of the document.
	Location string `json:"location"`
	// Object is kind and name of the object.
	Object string `json:"object"`
	// Field is its path; a path in JSON inside of a string follows a colon.
	Field string `json:"field,omitempty"`
	// Value is the value as JSON, shortened.
	Value string `json:"value,omitempty"`
	// Action is true if the user has to act, and false if the field is no longer needed.
	Action bool `json:"action"`
	// Reason is why, and what to do.
	Reason string `json:"reason"`

	order int // of the object in the input
}

// source is an object of the input, which findings are about. order keeps findings in the order of the input, although
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

// maxValue is how many characters of a value are shown.
const maxValue = 60

// shorten makes a value one line of a report. It is cut by characters, not by bytes, which would leave half of one.
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

// fields are the fields of one object of the input. Reading a field marks it; close reports unread fields. A child is
// closed with its parent; an object inside of a string is a child, too. Not safe for concurrent use.
type fields struct {
	*source
	path     string // with a separator at its end, or empty
	values   map[string]any
	read     map[string]bool
	children []*fields
	mistyped bool // a value was not read, since it has another type
}

func newFields(s *source, path string, values map[string]any) *fields {
	return &fields{source: s, path: path, values: values, read: map[string]bool{}}
}

// whole is the path of the object itself.
func (f *fields) whole() string { return strings.TrimRight(f.path, ".: ") }

// pop returns a value and marks it as read; nil if there is none. The programs that read the input ignore the case of
// keys, as encoding/json does. An exact key comes first, as it does there; of others the first by name counts.
func (f *fields) pop(key string) any {
	if _, exact := f.values[key]; exact {
		f.read[key] = true
		return f.values[key]
	}
	for _, candidate := range slices.Sorted(maps.Keys(f.values)) {
		if strings.EqualFold(candidate, key) && !f.read[candidate] {
			f.read[candidate] = true
			return f.values[candidate]
		}
	}
	return nil
}

// typed returns a value of a type; one of another type is a finding. YAML gives all numbers as float64.
func typed[T any](f *fields, key, want string) T {
	value := f.pop(key)
	result, matches := value.(T)
	if value != nil && !matches {
		f.mistyped = true
		f.add(true, f.path+key, value, "is not %s, so it was not read: correct it", want)
	}
	return result
}

func (f *fields) text(key string) string { return typed[string](f, key, "a string") }

func (f *fields) flag(key string) bool { return typed[bool](f, key, "true or false") }

func (f *fields) number(key string) float64 { return typed[float64](f, key, "a number") }

// texts returns a list of strings. A single string counts as a list of one.
func (f *fields) texts(key string) []string {
	value := f.pop(key)
	if single, isText := value.(string); isText {
		return []string{single}
	}
	list, isList := value.([]any)
	if value != nil && !isList {
		f.mistyped = true
		f.add(true, f.path+key, value, "is not a list of strings, so it was not read: correct it")
	}
	var texts []string
	for i, item := range list {
		text, isText := item.(string)
		if !isText {
			f.mistyped = true
			f.add(true, fmt.Sprintf("%s%s[%d]", f.path, key, i), item, "is not a string, so it was not read: "+
				"correct it")
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

// child returns the fields of an object inside of this one, without any if there is none.
func (f *fields) child(key string) *fields {
	return f.adopt(f.path+key+".", typed[map[string]any](f, key, "an object"))
}

// list returns the objects of a list; an object alone counts as a list of one.
func (f *fields) list(key string) []*fields {
	value := f.pop(key)
	if single, isObject := value.(map[string]any); isObject {
		return []*fields{f.adopt(f.path+key+".", single)}
	}
	list, isList := value.([]any)
	if value != nil && !isList {
		f.mistyped = true
		f.add(true, f.path+key, value, "is not a list, so it was not read: correct it")
	}
	var all []*fields
	for i, item := range list {
		path := fmt.Sprintf("%s%s[%d]", f.path, key, i)
		object, isObject := item.(map[string]any)
		if !isObject {
			f.mistyped = true
			f.add(true, path, item, "is not an object, so it was not read: correct it")
			continue
		}
		all = append(all, f.adopt(path+".", object))
	}
	return all
}

func (f *fields) adopt(path string, values map[string]any) *fields {
	child := newFields(f.source, path, values)
	f.children = append(f.children, child)
	return child
}

// note reports a nonempty field that is no longer needed.
func (f *fields) note(key, format string, arguments ...any) {
	f.record(false, key, format, arguments...)
}

// action reports a nonempty field that requires an action of the user.
func (f *fields) action(key, format string, arguments ...any) {
	f.record(true, key, format, arguments...)
}

func (f *fields) record(action bool, key, format string, arguments ...any) {
	if value := f.pop(key); !isEmpty(value) {
		f.add(action, f.path+key, value, format, arguments...)
	}
}

// isEmpty reports whether a value is equivalent to an absent field.
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
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// ignore marks fields that the API server writes, and not the author.
func (f *fields) ignore(keys ...string) {
	for _, key := range keys {
		f.pop(key)
	}
}

// close reports every unread field.
func (f *fields) close() {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[key] {
			f.add(true, f.path+key, f.values[key], "import does not know this field, and has not translated it: see "+
				"whether you need it")
		}
	}
	for _, child := range f.children {
		child.close()
	}
}

// restricts returns the terms of a selector, with one that nothing fulfils if a part of it was not understood.
//
// It must be called when everything that is known of the selector has been read. A policy that ignored a restriction
// would offer devices that the original kept back.
func (f *fields) restricts(terms []string) []string {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[key] {
			f.pop(key)
			f.mistyped = true
			f.add(true, f.path+key, f.values[key], "import does not know this selector, so the policy selects "+
				"nothing: replace %q in its selector by what tells these devices apart, or by true", never)
		}
	}
	if f.mistyped {
		terms = append(terms, never)
	}
	return terms
}

// nothing returns the terms of a policy with one that nothing fulfils, since a value was not read that may restrict it.
func (f *fields) nothing(terms []string) []string {
	f.add(true, f.whole(), nil, "has a value that was not read, so the policy selects nothing: correct it and import it "+
		"again, or remove %q from its selector", never)
	return append(terms, never)
}

// decodeJSON reads an object in JSON, as it stands inside of a string. A key that stands twice is an error. Package
// json takes the last of two equal keys, and other parsers the first.
func decodeJSON(text string) (map[string]any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("something follows the object")
	}
	return object, checkDuplicates(text)
}
