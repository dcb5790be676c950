package policy

import "k8s.io/apiserver/pkg/cel/environment"

type purpose int

const (
	// forSelector: the expression selects devices; see compile.
	forSelector purpose = iota
	// forAttribute: the expression yields an attribute; see compileAttribute.
	forAttribute
)

// expressions compiles the expressions in stored policies. Each expression is compiled once, and the result is reused
// from the previous decision. A result depends only on the text of an expression and its purpose. Only results that
// were used for a decision are kept for the next one, so that expressions from changed or deleted policies do not
// accumulate.
type expressions struct{ before, used map[written]compiled }

// written identifies an expression in a policy by its text and its purpose.
type written struct {
	text    string
	purpose purpose
}

type compiled struct {
	selector selector
	err      error
}

// compile compiles a stored expression, using compile or compileAttribute depending on its purpose.
func (x *expressions) compile(text string, use purpose) (selector, error) {
	key := written{text, use}
	found, known := x.used[key]
	if !known {
		found, known = x.before[key]
	}
	if !known {
		compileText := compile
		if use == forAttribute {
			compileText = compileAttribute
		}
		found.selector, found.err = compileText(text, environment.StoredExpressions)
	}
	x.used[key] = found
	return found.selector, found.err
}
