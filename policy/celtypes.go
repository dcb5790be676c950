package policy

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// CheckTypes returns an error for each comparison of an attribute with a literal of a different type, as in mtu >
// "9000", and for a selector that consists of nothing but a non-boolean attribute. The compiler accepts both, since it
// does not know the types of attributes. During evaluation, < and > would fail, == would never be true, and the bare
// attribute would not select any devices. CheckTypes returns nil for an expression that does not compile.
func CheckTypes(expression string) error {
	return errors.Join(checkTypes(expression, compile), checkYields(expression))
}

// checkYields returns an error if an expression consists of nothing but a non-boolean attribute.
func checkYields(expression string) error {
	s, err := compile(expression, environment.StoredExpressions)
	if err != nil {
		return nil //nolint:nilerr // other checks report the error
	}
	compiled, issues := s.result.Environment.Compile(s.result.Expression)
	if issues.Err() != nil {
		return nil //nolint:nilerr // as above
	}
	a, isAttribute := valueOf(compiled.NativeRep().Expr(), scope{})
	example := map[kind]string{stringKind: `"…"`, numberKind: "1"}[a.kind()]
	if !isAttribute || example == "" {
		return nil
	}
	return fmt.Errorf("%s is %s, but a selector must be true or false: compare it, as in %s == %s", a.id, a.kind(),
		a.field("."), example)
}

// checkTypes returns the type errors in an expression's comparisons. It accepts expressions for any purpose.
func checkTypes(expression string, compile compiler) error {
	w, err := walkStored(expression, compile)
	if err != nil {
		return nil //nolint:nilerr // other checks report the error
	}
	return errors.Join(w.mismatches...)
}

// kind is the type of an attribute or a literal; unknownKind means that the type cannot be determined.
type kind string

const (
	unknownKind kind = ""
	stringKind  kind = "a string"
	numberKind  kind = "a number"
	booleanKind kind = "true or false"
)

// compare records an error if a call compares an attribute with a literal of a different type.
func (w *walker) compare(call ast.CallExpr, vars scope) {
	switch name := call.FunctionName(); name {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater,
		operators.GreaterEquals:
		left, right := call.Args()[0], call.Args()[1]
		operator, _ := operators.FindReverse(name)
		w.compareWith(left, right, vars, "%[1]s "+operator+" %[2]s")
		w.compareWith(right, left, vars, "%[2]s "+operator+" %[1]s")
	case operators.In:
		if list := resolve(call.Args()[1], vars); list.Kind() == ast.ListKind {
			for _, element := range list.AsList().Elements() {
				w.compareWith(call.Args()[0], element, vars, "%[1]s in [%[2]s]")
			}
		}
	}
}

// compareWith records an error if the attribute and the literal have different types. form is the format string for the
// comparison, with verbs for the attribute's name and a literal.
func (w *walker) compareWith(attribute, literal ast.Expr, vars scope, form string) {
	a, ok := valueOf(attribute, vars)
	left, with := a.kind(), kindOf(resolve(literal, vars))
	if !ok || left == unknownKind || with == unknownKind || left == with {
		return
	}
	text := fmt.Sprint(resolve(literal, vars).AsLiteral().Value())
	shown := map[kind]string{stringKind: fmt.Sprintf("the string %q", text), numberKind: "the number " + text,
		booleanKind: text}[with]
	w.mismatches = append(w.mismatches, fmt.Errorf("%s is %s, compared with %s: write %s", a.id, left, shown,
		fix(left, text, a.id, form)))
}

// fix returns the suggested replacement for a comparison with a literal of the wrong type.
func fix(actual kind, text, name, form string) string {
	_, notNumber := strconv.ParseInt(text, 10, 64)
	switch {
	case actual == stringKind:
		return fmt.Sprintf(form, name, strconv.Quote(text)) + ", in quotes"
	case actual == numberKind && notNumber == nil, actual == booleanKind && (text == "true" || text == "false"):
		return fmt.Sprintf(form, name, text) + ", without quotes"
	case actual == numberKind:
		return "a number there, without quotes"
	}
	return "true or false there, without quotes"
}

// valueOf returns the attribute or capacity that e evaluates to: a.x, a["x"], or a.?x.orValue(other) if other is a
// literal of the attribute's type. A literal of a different type may represent absence; a comparison then involves more
// than the attribute.
func valueOf(e ast.Expr, vars scope) (access, bool) {
	e = resolve(e, vars)
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "orValue" {
		return accessOf(e, vars)
	}
	optional := resolve(e.AsCall().Target(), vars)
	if optional.Kind() != ast.CallKind || optional.AsCall().FunctionName() != operators.OptSelect {
		return access{}, false
	}
	id, literal := stringLiteral(optional.AsCall().Args()[1])
	domain, ok := domainOf(optional.AsCall().Args()[0], vars)
	domain.id = id
	return domain, ok && literal && kindOf(e.AsCall().Args()[0]) == domain.kind()
}

// kind returns the type of one of the driver's attributes, which is the same on every device. It returns unknownKind
// for attributes that policies add, since these can have any type.
func (a access) kind() kind {
	if a.capacity || a.computed {
		return unknownKind
	}
	if a.domain == v1alpha1.CNIDomain {
		return booleanKind
	}
	value, known := Attributes(discovery.Device{})[a.qualifiedName()]
	switch {
	case !known:
		return unknownKind
	case value.IntValue != nil:
		return numberKind
	case value.BoolValue != nil:
		return booleanKind
	}
	return stringKind
}

func kindOf(e ast.Expr) kind {
	if e.Kind() != ast.LiteralKind {
		return unknownKind
	}
	switch e.AsLiteral().(type) {
	case types.String:
		return stringKind
	case types.Int, types.Uint, types.Double:
		return numberKind
	case types.Bool:
		return booleanKind
	}
	return unknownKind
}
