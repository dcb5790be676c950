package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/environment"
)

// ClassExpression returns the expression of a topology's step in the form for a DeviceClass. The scheduler stops
// scheduling a pod if a selector reads an attribute that a device lacks, even if the device would not match, and
// published entries only contain facts. Therefore each access to an attribute that is published only as a fact gets a
// guard with the value that represents absence: pfName becomes (has(pfName) ? pfName : ""). The expression then has the
// same result for a device in a class as in a policy. Existing guards and attributes that the driver does not publish
// stay unchanged. ClassExpression returns an error if the expression does not compile or an access cannot be guarded.
//
// The text is cut and joined instead of printed from the syntax tree: macros are expanded in the tree, and authors want
// to recognize their own text in the DeviceClass.
func ClassExpression(expression string) (string, error) {
	s, err := compile(expression, environment.StoredExpressions)
	if err != nil {
		return "", err
	}
	w, err := s.walked()
	if err != nil {
		return "", err
	}
	source := []rune(expression)
	var guards []guard
	for _, reading := range w.unguarded {
		absent, published := publishedAbsent(reading.access)
		if !published {
			continue
		}
		g, err := newGuard(source, w, reading, absent)
		if err != nil {
			return "", err
		}
		guards = append(guards, g)
	}
	slices.SortFunc(guards, func(a, b guard) int { return cmp.Compare(a.start, b.start) })
	guards = slices.Compact(guards) // optMap() repeats its receiver
	var text strings.Builder
	done := 0
	for _, g := range guards {
		if g.start < done { // operand of an access with a computed name, as in attributes[…][attributes[…].type]
			return "", errComputedName
		}
		text.WriteString(string(source[done:g.start]) + g.text)
		done = g.end
	}
	text.WriteString(string(source[done:]))
	return text.String(), nil
}

// publishedAbsent returns the CEL literal that represents an absent attribute, if the driver publishes the attribute
// only as a fact.
func publishedAbsent(a access) (literal string, published bool) {
	if a.computed || publicationOf(a) != whereFact {
		return "", false
	}
	return absentLiteral(a)
}

// guard replaces the part of an expression from start to end, counted in characters.
type guard struct {
	start, end int
	text       string
}

// newGuard returns the guard of one access: operand.name or operand["name"].
//
// The access starts where the leftmost part of its operand starts. The parser reports this position without brackets;
// openBrackets adds them, as in (device.attributes)["dra.networking"].mtu.
func newGuard(source []rune, w *walker, reading unguardedReading, absent string) (guard, error) {
	operator := int(w.offsets[reading.expr.ID()].Start)
	start := operator
	ast.PreOrderVisit(reading.expr, ast.NewExprVisitor(func(e ast.Expr) {
		if offsets, known := w.offsets[e.ID()]; known {
			start = min(start, int(offsets.Start))
		}
	}))
	// CEL allows white space around the name. Comments in this position are rejected.
	name := regexp.MustCompile(`^(?:\.\s*` + reading.access.id + `\b|\[\s*(?:"` + reading.access.id + `"|'` +
		reading.access.id + `')\s*\])`).FindString(string(source[operator:]))
	start = openBrackets(source, start, operator)
	operand := string(source[start:operator])
	if name == "" || unopened(operand) != 0 || strings.Contains(operand, "//") && strings.Contains(operand, "(") {
		return guard{}, fmt.Errorf("cannot guard the reading of %s, which not every device has: write it as %s, or "+
			"guard it with has(%s) &&", reading.access.id, reading.access.field("."), reading.access.field("."))
	}
	text := fmt.Sprintf("(has(%[1]s.%[2]s) ? %[1]s.%[2]s : %[3]s)", operand, reading.access.id, absent)
	return guard{start: start, end: operator + len([]rune(name)), text: text}, nil
}

// openBrackets returns the start of an operand including the brackets that close in it: there are only spaces and other
// brackets between these and its first word.
func openBrackets(source []rune, start, end int) int {
	for unopened(string(source[start:end])) > 0 && start > 0 && strings.ContainsRune("( \t\r\n", source[start-1]) {
		start--
	}
	return start
}

// unopened counts the brackets that close in a text but open before it. The names of domains contain no brackets.
func unopened(text string) int { return strings.Count(text, ")") - strings.Count(text, "(") }
