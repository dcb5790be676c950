package policy

import "testing"

// Expressions compiled for the previous decision are reused, and unused expressions are dropped.
func TestExpressionsAreKeptFromOneDecisionToTheNext(t *testing.T) {
	first := &expressions{used: map[written]compiled{}}
	for _, use := range []purpose{forSelector, forAttribute} {
		if _, err := first.compile("true", use); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.compile("true ==", forSelector); err == nil {
		t.Error("an invalid expression compiled, want an error")
	}
	second := &expressions{before: first.used, used: map[written]compiled{}}
	if _, err := second.compile("true ==", forSelector); err == nil {
		t.Error("an invalid expression compiled on the second attempt, want an error")
	}
	// The cached entry is used even for an expression that would not compile.
	second.before[written{"not compiled", forSelector}] = compiled{selector: selector{}}
	if _, err := second.compile("not compiled", forSelector); err != nil {
		t.Errorf("the expression was compiled again: %v", err)
	}
	if kept := len(second.used); kept != 2 {
		t.Errorf("kept %d expressions, want the 2 that were used", kept)
	}
}
