package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// ClassExpression converts the expression in a topology's step for use in a DeviceClass. Published entries only contain
// facts, and the scheduler stops scheduling a pod if a selector reads an attribute that a device does not have, even if
// the device would not match. Therefore, each access to an attribute that is only published as a fact is guarded with
// the value that represents absence: pfName becomes (has(pfName) ? pfName : ""). With these guards, an expression
// selects the same devices in a class as in a policy. Existing guards, and accesses to attributes that the driver does
// not publish, stay unchanged. ClassExpression returns an error if the expression does not compile or an access cannot
// be guarded.
//
// The result is assembled from pieces of the original text instead of being printed from the syntax tree, because
// macros are expanded in the tree and authors want to recognize their own text in the DeviceClass.
func ClassExpression(expression string) (string, error) {
	w, err := walkStored(expression, compile)
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
	guards = slices.Compact(guards) // optMap() repeats its receiver in the tree
	var text strings.Builder
	done := 0
	for _, g := range guards {
		if g.start < done { // nested in an access with a computed name, as in attributes[…][attributes[…].type]
			return "", errComputedName
		}
		text.WriteString(string(source[done:g.start]) + g.text)
		done = g.end
	}
	text.WriteString(string(source[done:]))
	return text.String(), nil
}

// publishedAbsent returns the CEL literal that represents the absence of an attribute. published is true only for
// attributes that the driver publishes exactly for the devices that have them.
func publishedAbsent(a access) (literal string, published bool) {
	if a.computed || publicationOf(a) != whereFact {
		return "", false
	}
	return absentLiteral(a)
}

// guard is a replacement for the part of an expression from start to end, both as character offsets.
type guard struct {
	start, end int
	text       string
}

// newGuard returns the guard for one access: operand.name or operand["name"].
//
// The access starts at the leftmost part of its operand. The position reported by the parser does not include
// parentheses around this part; openBrackets adds them, as in (device.attributes)["dra.networking"].mtu.
func newGuard(source []rune, w *walker, reading unguardedReading, absent string) (guard, error) {
	operator := int(w.offsets[reading.expr.ID()].Start)
	start := operator
	ast.PreOrderVisit(reading.expr, ast.NewExprVisitor(func(e ast.Expr) {
		if offsets, known := w.offsets[e.ID()]; known {
			start = min(start, int(offsets.Start))
		}
	}))
	// CEL allows white space around the name. It also allows comments there, but the pattern rejects them.
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

// openBrackets moves the start of an operand back to include the opening parentheses that are closed within the
// operand. Only white space and other parentheses can appear between these parentheses and the operand's first word.
func openBrackets(source []rune, start, end int) int {
	for unopened(string(source[start:end])) > 0 && start > 0 && strings.ContainsRune("( \t\r\n", source[start-1]) {
		start--
	}
	return start
}

// unopened returns how many more closing than opening parentheses text contains. Domain names contain no parentheses.
func unopened(text string) int { return strings.Count(text, ")") - strings.Count(text, "(") }
