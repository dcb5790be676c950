package policy

import (
	"fmt"
	"strings"

	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// compileError says why an expression does not compile. The compiler's words for = in place of == name tokens and no
// cause, so an expression that compiles with == is shown with it.
func compileError(expression string, result dracel.CompilationResult, options dracel.Options, want string) error {
	if corrected := withEquals(expression); corrected != expression &&
		compileAs(corrected, options).Error == nil {
		return fmt.Errorf("cannot compile the expression: = compares nothing in CEL; write ==, as in %s", corrected)
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

// partOfOperator reports whether the = at an index belongs to ==, !=, <= or >=.
func partOfOperator(expression string, i int) bool {
	before := i > 0 && strings.IndexByte("=!<>", expression[i-1]) >= 0
	return before || i+1 < len(expression) && expression[i+1] == '='
}
