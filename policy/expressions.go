package policy

import "k8s.io/apiserver/pkg/cel/environment"

// purpose is what an expression of a policy is for.
type purpose int

const (
	// forSelector is an expression that selects devices: see compile.
	forSelector purpose = iota
	// forAttribute is one that yields an attribute: see compileAttribute.
	forAttribute
)

// expressions compiles what is stored in policies, each text once, and takes what the decision before has compiled.
// What is compiled depends on nothing but the text and its purpose. Only what this decision has used is for the next
// one, so that expressions of policies that were changed or deleted do not pile up.
type expressions struct{ before, used map[written]compiled }

// written is an expression as a policy has it.
type written struct {
	text    string
	purpose purpose
}

// compiled is what became of it.
type compiled struct {
	selector selector
	err      error
}

// compile is compile or compileAttribute, of a stored expression.
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
