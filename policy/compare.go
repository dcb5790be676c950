package policy

import (
	"fmt"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// mistake is syntax that users carry over from other languages. The compiler's message about it refers to tokens, but
// not to the cause.
type mistake struct {
	// correct returns the expression without the mistake, or unchanged if it does not contain the mistake.
	correct func(expression string) string
	advice  string
}

// mistakes returns all known mistakes.
func mistakes() []mistake {
	return []mistake{
		{withEquals, "= compares nothing in CEL, == does"},
		{withOperators, "and, or and not are written &&, || and !( )"},
		{withFunctionNames, "string functions are startsWith, endsWith, contains, matches and lowerAscii"},
		{withLists, "in needs a list, such as [\"eth0\"]"},
		{withDomain, "attributes of a device are read by their domain"},
	}
}

// compileError explains why an expression does not compile. If correcting known mistakes makes it compile, the error
// shows the corrected expression. Otherwise, the error is the compiler's message, followed by advice about the known
// mistakes.
func compileError(expression string, result dracel.CompilationResult, options dracel.Options, want string) error {
	corrected := expression
	var advice []string
	for _, known := range mistakes() {
		better := known.correct(corrected)
		if better == corrected {
			continue
		}
		advice, corrected = append(advice, known.advice), better
		if compileAs(corrected, options).Error == nil { // what else looks like a mistake is then correct
			return fmt.Errorf("cannot compile the expression: %s; write %s", strings.Join(advice, ", and "), corrected)
		}
	}
	detail := result.Error.Detail + "; it must be a CEL expression over one device that yields " + want
	if len(advice) > 0 {
		detail += "; " + strings.Join(advice, ", and ")
	}
	return fmt.Errorf("cannot compile the expression: %s", detail)
}

// withTokens returns an expression with its tokens replaced. last is the last non-space byte before the token. replace
// returns the replacement for a token, and the number of bytes to drop after the token.
func withTokens(expression string, replace func(last byte, token, rest string) (text string, drop int)) string {
	var corrected strings.Builder
	last := byte(0)
	for rest := expression; rest != ""; {
		token := nextToken(rest)
		rest = rest[len(token):]
		text, drop := replace(last, token, rest)
		rest = rest[drop:]
		corrected.WriteString(text)
		optional := last == '.' && text == "?" // a field follows, as after a plain dot
		if text := strings.TrimSpace(text); text != "" && !optional {
			last = text[len(text)-1]
		}
	}
	return corrected.String()
}

// withOperators returns an expression in which and, or and not are replaced by the CEL operators. If a not has no
// parentheses, its operand is ambiguous, since ! binds more tightly than ==; it is replaced by text that does not
// compile.
func withOperators(expression string) string {
	return withTokens(expression, func(last byte, token, rest string) (string, int) {
		if last == '.' || last == 0 && !strings.EqualFold(token, "not") {
			return token, 0
		}
		switch strings.ToLower(token) {
		case "and":
			return "&&", 0
		case "or":
			return "||", 0
		case "not":
			space := len(rest) - len(strings.TrimLeft(rest, " "))
			if strings.HasPrefix(rest[space:], "(") {
				return "!", space
			}
			return "! ?", 0
		}
		return token, 0
	})
}

// withFunctionNames returns an expression in which functions of other languages are replaced by CEL functions.
func withFunctionNames(expression string) string {
	known := map[string]string{"startswith": "startsWith", "hasprefix": "startsWith", "endswith": "endsWith",
		"hassuffix": "endsWith", "contains": "contains", "includes": "contains", "matches": "matches",
		"match": "matches", "lowerascii": "lowerAscii", "tolower": "lowerAscii", "lower": "lowerAscii"}
	return withTokens(expression, func(last byte, token, rest string) (string, int) {
		name := known[strings.ToLower(strings.ReplaceAll(token, "_", ""))]
		if name == "" || last != '.' || !strings.HasPrefix(rest, "(") {
			return token, 0
		}
		return name, 0
	})
}

// withLists returns an expression in which each string after in becomes a list with this string.
func withLists(expression string) string {
	isIn := false
	return withTokens(expression, func(_ byte, token, _ string) (string, int) {
		isString := token[0] == '"' || token[0] == '\''
		inString := isIn && isString
		isIn = token == "in" || isIn && strings.TrimSpace(token) == ""
		if inString {
			return "[" + token + "]", 0
		}
		return token, 0
	})
}

// withEquals returns an expression in which every = becomes ==, unless it is in a string or part of another operator.
// It does not recognize raw strings and comments, so callers must compile the result.
func withEquals(expression string) string {
	var corrected strings.Builder
	quote := byte(0)
	for i := 0; i < len(expression); i++ {
		char := expression[i]
		corrected.WriteByte(char)
		switch {
		case quote != 0 && char == '\\' && i+1 < len(expression):
			i++
			corrected.WriteByte(expression[i])
		case quote != 0:
			if char == quote {
				quote = 0
			}
		case char == '"' || char == '\'':
			quote = char
		case char == '=' && !partOfOperator(expression, i):
			corrected.WriteByte('=')
		}
	}
	return corrected.String()
}

// bareAttribute matches common spellings of a device attribute at the beginning of a text: attributes.NAME,
// attributes["NAME"] and attributes["DOMAIN"].NAME, with or without device, and also in the singular.
var bareAttribute = regexp.MustCompile(`^(?:device\.)?attributes?(?:\.([A-Za-z_]\w*)|` +
	`\["([^"]*)"\](?:\.([A-Za-z_]\w*))?)`)

// withDomain returns an expression in which device attributes are replaced by their full form, if they are written as a
// plain name (ifName), as a field of the device (device.ifName), or without the domain (device.attributes.ifName). It
// does not change strings, but does not recognize raw strings and comments, so callers must compile the result.
func withDomain(expression string) string {
	known := Attributes(discovery.Device{})
	isKnown := func(name string) bool {
		_, found := known[resourceapi.QualifiedName(v1alpha1.QualifiedName(name))]
		return found
	}
	const section = `device.attributes["` + v1alpha1.AttributeDomain + `"].`
	return withTokens(expression, func(last byte, token, rest string) (string, int) {
		if last == '.' {
			return token, 0
		}
		if found := bareAttribute.FindStringSubmatch(token + rest); found != nil {
			name := found[1] + found[2]
			if found[2] == v1alpha1.AttributeDomain {
				name = found[3]
			} else if found[3] != "" {
				return token, 0
			}
			if isKnown(name) {
				return section + name, len(found[0]) - len(token)
			}
			return token, 0
		}
		if field, isField := strings.CutPrefix(rest, "."); token == "device" && isField && field != "" {
			name := nextToken(field)
			if name != "driver" && isKnown(name) { // the API has device.driver
				return section + name, 1 + len(name)
			}
		}
		if isKnown(token) {
			return section + token, 0
		}
		return token, 0
	})
}

// nextToken returns the first token of a non-empty text: a name or number, a string, or a single other byte.
func nextToken(text string) string {
	isWord := func(char byte) bool {
		return char == '_' || '0' <= char && char <= '9' || 'A' <= char && char <= 'Z' || 'a' <= char && char <= 'z'
	}
	end := 1
	switch quote := text[0]; {
	case quote == '"' || quote == '\'':
		for ; end < len(text) && text[end] != quote; end++ {
			if text[end] == '\\' {
				end++
			}
		}
		return text[:min(end+1, len(text))]
	case isWord(quote):
		for end < len(text) && isWord(text[end]) {
			end++
		}
	}
	return text[:end]
}

// partOfOperator reports whether the = at an index belongs to ==, !=, <= or >=.
func partOfOperator(expression string, i int) bool {
	before := i > 0 && strings.IndexByte("=!<>", expression[i-1]) >= 0
	return before || i+1 < len(expression) && expression[i+1] == '='
}
