// Package template renders the templates in topologies, such as {{ pod.name }}, on parsed JSON.
//
// Invariant: it is pure, and handles the syntax of a token but not its meaning.
package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// IsCapacity reports whether the token refers to an amount of capacity allocated to the claim.
func (t Token) IsCapacity() bool { return strings.HasPrefix(t.Field, FieldCapacity) }

// Token is one {{ root.field[index].part }} in a template.
type Token struct {
	Root  string
	Field string
	Index int // -1 if there is none
	Part  string
}

// String returns the token without its braces.
func (t Token) String() string {
	text := t.Root + "." + t.Field
	if t.Index >= 0 {
		text += "[" + strconv.Itoa(t.Index) + "]"
	}
	if t.Part != "" {
		text += "." + t.Part
	}
	return text
}

// Token roots other than step names.
const (
	VarPod    = "pod"
	VarClaim  = "claim"
	VarNode   = "node"
	VarDevice = "device"
)

// Step fields that templates can refer to.
const (
	FieldInterfaceName = "interfaceName"
	FieldMAC           = "mac"
	FieldSandbox       = "sandbox"
	FieldInterfaces    = "interfaces"
	FieldPCIAddress    = "pciAddress"
	FieldIPs           = "ips"
	// FieldCapacity is the prefix of fields such as capacity.bandwidth, which contain the amounts allocated to the
	// claim.
	FieldCapacity = "capacity."
	PartAddress   = "address"
	PartGateway   = "gateway"
)

// The patterns are compiled on each call to New rather than once for the package, because this avoids package-level
// state, and each plan has only a few templates.
const (
	tokenPattern = `\{\{\s*(.*?)\s*\}\}`
	namePattern  = `^([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)\.([A-Za-z][A-Za-z0-9_./-]*?)(?:\[([0-9]{1,` +
		`3})\](?:\.([a-z]+))?)?$`
)

// Lookup returns the value of a token, which is a JSON value (string, bool, number or list).
type Lookup func(Token) (any, error)

// Engine renders templates in parsed JSON, never in text. A string that consists of a single token is replaced with the
// token's value, which keeps its type; tokens within a longer string are replaced with text. A value cannot add keys,
// cannot break out of its string, and is not rendered again.
//
// For example, with an MTU of 9000, "{{ device.mtu }}" becomes the number 9000, and "mtu-{{ device.mtu }}" becomes the
// text mtu-9000. A name such as x","y":"z stays one string, since the document is encoded from values.
type Engine struct {
	tokens *regexp.Regexp
	names  *regexp.Regexp
}

// New compiles the patterns.
func New() Engine {
	return Engine{tokens: regexp.MustCompile(tokenPattern), names: regexp.MustCompile(namePattern)}
}

// RenderJSON renders every string in a JSON document, but not the keys.
//
// Numbers keep their original text (json.Number). If they were decoded as floats, 9007199254740993 would become a
// different number.
func (t Engine) RenderJSON(document json.RawMessage, resolve Lookup) (json.RawMessage, error) {
	value, err := DecodeJSON(document)
	if err != nil {
		return nil, err
	}
	rendered, err := t.Render(value, "config", resolve)
	if err != nil {
		return nil, err
	}
	return json.Marshal(rendered)
}

// RenderString renders a string and returns the result as text.
func (t Engine) RenderString(text, path string, resolve Lookup) (string, error) {
	value, err := t.Render(text, path, resolve)
	if err != nil {
		return "", err
	}
	return asText(value), nil
}

// Render renders every string in a parsed JSON value. The path is used in errors.
func (t Engine) Render(value any, path string, resolve Lookup) (any, error) {
	switch value := value.(type) {
	case string:
		return t.renderText(value, path, resolve)
	case []any:
		return t.renderList(value, path, resolve)
	case map[string]any:
		return t.renderObject(value, path, resolve)
	}
	return value, nil
}

// HasTokens reports whether the text contains tokens that would be rendered.
func (t Engine) HasTokens(text string) bool { return t.tokens.MatchString(text) }

// renderList renders each item. Errors contain path as the location, such as config.routes[0].
func (t Engine) renderList(list []any, path string, resolve Lookup) (any, error) {
	out := make([]any, len(list))
	for i, item := range list {
		rendered, err := t.Render(item, fmt.Sprintf("%s[%d]", path, i), resolve)
		if err != nil {
			return nil, err
		}
		out[i] = rendered
	}
	return out, nil
}

// renderObject renders each value. Keys are not rendered. They are processed in sorted order, so that renderObject
// returns the same error each time if there are several.
func (t Engine) renderObject(object map[string]any, path string, resolve Lookup) (any, error) {
	out := make(map[string]any, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		rendered, err := t.Render(object[key], path+"."+key, resolve)
		if err != nil {
			return nil, err
		}
		out[key] = rendered
	}
	return out, nil
}

// renderText replaces the templates in a string. A string that consists of a single template becomes the template's
// value with the value's type, for example a list; within a longer string, every value is converted to text.
func (t Engine) renderText(text, path string, resolve Lookup) (any, error) {
	places := t.tokens.FindAllStringSubmatchIndex(text, -1)
	if places == nil {
		return text, nil
	}
	var out strings.Builder
	end := 0
	for _, place := range places {
		value, err := t.resolve(text[place[2]:place[3]], resolve)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot resolve template %q: %w", path, "{{ "+text[place[2]:place[3]]+" }}", err)
		}
		if place[0] == 0 && place[1] == len(text) {
			return value, nil
		}
		out.WriteString(text[end:place[0]])
		out.WriteString(asText(value))
		end = place[1]
	}
	out.WriteString(text[end:])
	return out.String(), nil
}

// resolve parses the text between the braces. The grammar is deliberately limited to what a regular expression can
// parse: without functions, conditions and nesting, a template can only refer to a value.
func (t Engine) resolve(name string, resolve Lookup) (any, error) {
	match := t.names.FindStringSubmatch(name)
	if match == nil {
		return nil, fmt.Errorf("not a template: want <step>.<field>, device.<attribute>, pod.name, pod.namespace, " +
			"pod.uid, claim.name, claim.namespace, claim.uid or node.name")
	}
	parsed := Token{Root: match[1], Field: match[2], Index: -1, Part: match[4]}
	if match[3] != "" {
		parsed.Index, _ = strconv.Atoi(match[3]) // at most three digits
	}
	return resolve(parsed)
}

// asText converts a JSON value to text.
func asText(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []any:
		parts := make([]string, len(value))
		for i, item := range value {
			parts[i] = asText(item)
		}
		return strings.Join(parts, ",")
	case nil:
		return ""
	case float64: // an integer read from the journal
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// DecodeJSON parses a single JSON document and preserves the original text of numbers.
func DecodeJSON(document json.RawMessage) (any, error) {
	if len(document) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("cannot read JSON: %w", err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("cannot read JSON: more than one document")
	}
	return value, nil
}

// Contains reports whether the text contains a token.
//
// Unlike HasTokens, it also returns true for an unclosed token.
func Contains(text string) bool { return strings.Contains(text, "{{") }
