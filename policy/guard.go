package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// access is an attribute or a capacity that an expression reads.
type access struct {
	domain, id string
	capacity   bool
	// computed is true if the domain or the ID is not a literal.
	computed bool
}

// walk collects the attributes that an expression reads without a guard, in order of first access and without
// duplicates, as well as comparisons with literals of other types. In CEL, reading an attribute that a device does not
// have is an error. The following forms avoid this error: has(x) && f(x), f(x) && has(x), !has(x) || f(x), has(x) ?
// f(x) : other, and .?x.
func walk(result dracel.CompilationResult) (*walker, error) {
	compiled, issues := result.Environment.Compile(result.Expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("cannot compile the expression: %w", issues.Err())
	}
	w := &walker{found: map[access]bool{}, offsets: compiled.NativeRep().SourceInfo().OffsetRanges()}
	w.walk(compiled.NativeRep().Expr(), present{}, scope{})
	return w, nil
}

// present is the set of accessed fields that are known to exist.
type present map[access]bool

// scope maps each variable bound by cel.bind to its expression.
type scope map[string]ast.Expr

type walker struct {
	list       []access           // unguarded accesses without duplicates
	unguarded  []unguardedReading // all unguarded accesses
	found      map[access]bool
	mismatches []error  // see CheckTypes
	mentioned  []access // all accesses and presence tests, guarded or not, with duplicates
	// offsets maps expression IDs to positions in the text.
	offsets map[int64]ast.OffsetRange
}

// unguardedReading is a place where an expression reads an attribute that may be absent.
type unguardedReading struct {
	access access
	expr   ast.Expr
}

// walk collects the unguarded accesses in e, assuming that the attributes in known are present.
//
// For example, in has(device.attributes["dra.networking"].mtu) && device.attributes["dra.networking"].mtu > 1500, the
// left side implies that the mtu is present, so the access on the right side is not added to the list. Without the left
// side, it would be.
func (w *walker) walk(e ast.Expr, known present, vars scope) {
	if a, ok := mentionOf(e, vars); ok {
		w.mentioned = append(w.mentioned, a)
	}
	if a, ok := accessOf(e, vars); ok && !known[a] {
		w.unguarded = append(w.unguarded, unguardedReading{a, e})
		if !w.found[a] {
			w.found[a] = true
			w.list = append(w.list, a)
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		w.walk(e.AsSelect().Operand(), known, vars)
	case ast.CallKind:
		w.walkCall(e.AsCall(), known, vars)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			w.walk(element, known, vars)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.walk(entry.AsMapEntry().Key(), known, vars)
			w.walk(entry.AsMapEntry().Value(), known, vars)
		}
	case ast.ComprehensionKind:
		w.walkComprehension(e.AsComprehension(), known, vars)
	}
}

// walkCall walks a call. Regardless of the order of operands, an error in one operand of && does not matter if another
// operand is false, and an error in one operand of || does not matter if another operand is true.
func (w *walker) walkCall(call ast.CallExpr, known present, vars scope) {
	args := call.Args()
	w.compare(call, vars)
	switch call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		want := call.FunctionName() == operators.LogicalAnd
		for i, arg := range args {
			inside := maps.Clone(known)
			for j, other := range args {
				if i != j {
					maps.Copy(inside, implied(other, want, vars))
				}
			}
			w.walk(arg, inside, vars)
		}
		return
	case operators.Conditional:
		w.walk(args[0], known, vars)
		for i, condition := range []bool{true, false} {
			inside := maps.Clone(known)
			maps.Copy(inside, implied(args[0], condition, vars))
			w.walk(args[i+1], inside, vars)
		}
		return
	}
	if call.IsMemberFunction() {
		w.walk(call.Target(), known, vars)
	}
	for _, arg := range args {
		w.walk(arg, known, vars)
	}
}

// walkComprehension walks the expansion of a macro such as cel.bind, exists or all.
func (w *walker) walkComprehension(c ast.ComprehensionExpr, known present, vars scope) {
	w.walk(c.IterRange(), known, vars)
	w.walk(c.AccuInit(), known, vars)
	inside := maps.Clone(vars)
	// A loop variable shadows a bound variable with the same name.
	delete(inside, c.IterVar())
	delete(inside, c.IterVar2())
	if isBind(c) {
		inside[c.AccuVar()] = resolve(c.AccuInit(), vars)
	}
	w.walk(c.LoopCondition(), known, inside)
	w.walk(c.LoopStep(), known, inside)
	w.walk(c.Result(), known, inside)
}

// isBind reports whether a comprehension is the expansion of cel.bind(name, value, body), which loops over an empty
// list: value is the initial accumulator, and body is the result.
func isBind(c ast.ComprehensionExpr) bool {
	return c.IterRange().Kind() == ast.ListKind && c.IterRange().AsList().Size() == 0
}

// resolve returns the expression bound by cel.bind if e is a bound variable. It returns any other expression unchanged.
func resolve(e ast.Expr, vars scope) ast.Expr {
	if e.Kind() == ast.IdentKind {
		if bound, ok := vars[e.AsIdent()]; ok {
			return bound
		}
	}
	return e
}

// implied returns the attributes that must be present if e has the given truth value. If !(a || b) is true, for
// example, both a and b are false: LogicalNot inverts the truth value, and combine merges the results for several
// operands.
func implied(e ast.Expr, truth bool, vars scope) present {
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		if domain, ok := domainOf(e.AsSelect().Operand(), vars); ok && truth && !domain.computed {
			domain.id = e.AsSelect().FieldName()
			return present{domain: true}
		}
		return present{}
	}
	if e.Kind() != ast.CallKind {
		return present{}
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.LogicalNot:
		return implied(call.Args()[0], !truth, vars)
	case operators.In:
		id, literal := stringLiteral(call.Args()[0])
		if domain, ok := domainOf(call.Args()[1], vars); ok && literal && truth && !domain.computed {
			domain.id = id
			return present{domain: true}
		}
	case operators.LogicalAnd:
		return combine(call.Args(), truth, truth, vars)
	case operators.LogicalOr:
		return combine(call.Args(), truth, !truth, vars)
	}
	return present{}
}

// combine returns the attributes implied by the operands. If together is true, all operands have the given truth value,
// so every attribute implied by any of them is present. Otherwise, only the attributes implied by all of them are
// present.
func combine(operands []ast.Expr, truth, together bool, vars scope) present {
	result := implied(operands[0], truth, vars)
	for _, operand := range operands[1:] {
		more := implied(operand, truth, vars)
		if together {
			maps.Copy(result, more)
			continue
		}
		maps.DeleteFunc(result, func(a access, _ bool) bool { return !more[a] })
	}
	return result
}

// accessOf returns the attribute or capacity that e itself reads and that causes an error if it is absent.
func accessOf(e ast.Expr, vars scope) (access, bool) {
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		domain, ok := domainOf(e.AsSelect().Operand(), vars)
		domain.id = e.AsSelect().FieldName()
		return domain, ok
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return access{}, false
	}
	domain, ok := domainOf(e.AsCall().Args()[0], vars)
	id, literal := stringLiteral(e.AsCall().Args()[1])
	domain.id, domain.computed = id, domain.computed || !literal
	return domain, ok
}

// mentionOf returns the attribute or capacity that e itself reads or, as with has() and .?, tests for presence.
func mentionOf(e ast.Expr, vars scope) (access, bool) {
	var operand ast.Expr
	id, literal := "", true
	switch {
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		operand, id = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case e.Kind() == ast.CallKind && slices.Contains([]string{operators.OptSelect, operators.OptIndex},
		e.AsCall().FunctionName()):
		operand = e.AsCall().Args()[0]
		id, literal = stringLiteral(e.AsCall().Args()[1])
	default:
		return accessOf(e, vars)
	}
	domain, ok := domainOf(operand, vars)
	domain.id = id
	return domain, ok && literal
}

// domainOf returns the domain that e refers to, as in device.attributes["example.com"], if any.
func domainOf(e ast.Expr, vars scope) (access, bool) {
	e = resolve(e, vars)
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		capacity, ok := rootOf(e.AsSelect().Operand(), vars)
		return access{domain: e.AsSelect().FieldName(), capacity: capacity}, ok
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return access{}, false
	}
	capacity, ok := rootOf(e.AsCall().Args()[0], vars)
	key := e.AsCall().Args()[1]
	domain, literal := stringLiteral(key)
	if isField(key, "driver", vars) {
		domain, literal = v1alpha1.AttributeDomain, true
	}
	return access{domain: domain, capacity: capacity, computed: !literal}, ok
}

// rootOf reports whether e is device.attributes or device.capacity.
func rootOf(e ast.Expr, vars scope) (capacity, ok bool) {
	e = resolve(e, vars)
	if isField(e, "capacity", vars) {
		return true, true
	}
	return false, isField(e, "attributes", vars)
}

func isField(e ast.Expr, field string, vars scope) bool {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().FieldName() != field {
		return false
	}
	operand := resolve(e.AsSelect().Operand(), vars)
	return operand.Kind() == ast.IdentKind && operand.AsIdent() == "device"
}

func stringLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	value, ok := e.AsLiteral().(types.String)
	return string(value), ok
}
