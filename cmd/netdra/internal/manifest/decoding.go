package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// explainDecodeError says in the words of YAML what is wrong with a document that cannot be read into a Go type, which
// may be nil if it is not known. Errors that it does not know are returned as they are. It reads texts of package json,
// so a change there makes the explanation worse and never wrong.
func explainDecodeError(err error, document []byte, goType reflect.Type) error {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return describeMistyped(mistyped, document)
	}
	match := regexp.MustCompile(`^unknown field "([^"]+)"$`).FindStringSubmatch(err.Error())
	if match == nil || goType == nil {
		return err
	}
	parents, name := splitPath(match[1])
	if near := cnichain.Nearest(name, fieldNames(goType, parents)); near != "" {
		return fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}

// splitPath splits spec.steps[1].name into the fields spec and steps, and name.
func splitPath(path string) (parents []string, name string) {
	parts := strings.Split(regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(path, ""), ".")
	return parts[:len(parts)-1], parts[len(parts)-1]
}

// fieldNames returns the names, as in YAML, of the fields of what the path leads to; none if that has no fields of
// its own.
func fieldNames(t reflect.Type, path []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" || name == "-" || len(field.Index) > 1 && len(path) > 0:
		case len(path) == 0:
			names = append(names, name)
		case name == path[0]:
			return fieldNames(field.Type, path[1:])
		}
	}
	return names
}

// describeMistyped says where a value is of the wrong type, what it is and what it must be.
func describeMistyped(mistyped *json.UnmarshalTypeError, document []byte) error {
	actual, _, _ := strings.Cut(mistyped.Value, " ") // without the number
	names := map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list",
		"object": "an object"}
	path, fields := mistyped.Field, strings.Split(mistyped.Field, ".")
	var content any
	if yaml.Unmarshal(document, &content) == nil {
		if found, ok := locate(content, fields, actual); ok {
			path = strings.TrimPrefix(found, ".")
		}
	}
	return fmt.Errorf("%s: is %s, must be %s", path, cmp.Or(names[actual], actual),
		expectedType(mistyped.Type, fields[len(fields)-1]))
}

// locate returns the place of the first value of a type that the fields lead to, through lists with the index.
func locate(value any, fields []string, actual string) (string, bool) {
	if list, isList := value.([]any); isList && (len(fields) > 0 || actual != "array") {
		for i, item := range list {
			if rest, found := locate(item, fields, actual); found {
				return fmt.Sprintf("[%d]%s", i, rest), true
			}
		}
		return "", false
	}
	if len(fields) == 0 {
		return "", typeOf(value) == actual
	}
	object, _ := value.(map[string]any)
	inside, exists := object[fields[0]]
	rest, found := locate(inside, fields[1:], actual)
	return "." + fields[0] + rest, exists && found
}

// typeOf names a value's type as package json does.
func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64, int64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return ""
}

// expectedType describes what a field must be, with an example of small objects.
func expectedType(t reflect.Type, field string) string {
	switch t.Kind() {
	case reflect.String:
		return "a string, in quotes"
	case reflect.Bool:
		return "true or false, without quotes"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number, without quotes"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		if names := fieldNames(t, nil); len(names) > 0 && len(names) <= 3 {
			slices.Sort(names)
			return fmt.Sprintf("an object: %s: {%s: …}", field, strings.Join(names, ": …, "))
		}
	}
	return "an object"
}
