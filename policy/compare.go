package policy

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// compileError says why an expression does not compile. The compiler's words for = in place of == name tokens and no
// cause, so an expression that compiles with == is shown with it.
func compileError(expression string, result dracel.CompilationResult, options dracel.Options, want string) error {
	if corrected := withEquals(expression); corrected != expression &&
		compileAs(corrected, options).Error == nil {
		return fmt.Errorf("cannot compile the expression: = compares nothing in CEL; write ==, as in %s", corrected)
	}
	if corrected := withDomain(expression); corrected != expression &&
		compileAs(corrected, options).Error == nil {
		return fmt.Errorf("cannot compile the expression: attributes of a device are read by their domain; write %s",
			corrected)
	}
	return fmt.Errorf("cannot compile the expression: %s; it must be a CEL expression over one device that yields %s",
		result.Error.Detail, want)
}

// withEquals returns an expression with == for every = that is no part of another operator, outside of strings. It
// knows neither raw strings nor comments: whoever uses the result compiles it.
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

// withDomain returns an expression with attributes of devices, where they are written as names (ifName) or fields of
// the device (device.ifName), in full. It leaves strings as they are, and knows neither raw strings nor comments:
// whoever uses the result compiles it.
func withDomain(expression string) string {
	known := Attributes(discovery.Device{})
	var corrected strings.Builder
	last := byte(0) // that is no space, before what comes
	for rest := expression; rest != ""; {
		token := nextToken(rest)
		rest = rest[len(token):]
		name := token
		if token == "device" && len(rest) > 1 && rest[0] == '.' {
			name = nextToken(rest[1:])
		}
		_, isAttribute := known[resourceapi.QualifiedName(v1alpha1.QualifiedName(name))]
		isField := name == "driver" && name != token // the API has device.driver
		if isAttribute && !isField && last != '.' {
			if name != token {
				rest = rest[1+len(name):]
			}
			token = `device.attributes["` + v1alpha1.AttributeDomain + `"].` + name
		}
		corrected.WriteString(token)
		if text := strings.TrimSpace(token); text != "" {
			last = text[len(text)-1]
		}
	}
	return corrected.String()
}

// nextToken returns what a text, which is not empty, begins with: a name or number, a string, or any other byte.
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
