package policy

import (
	"strings"
	"testing"
)

// The commonest mistake is named, and what to write; other mistakes keep the compiler's words.
func TestSingleEqualsIsNamed(t *testing.T) {
	const ifName = `device.attributes["dra.networking"].ifName`
	for expression, want := range map[string]string{
		ifName + ` = "eth1"`: `write ==, as in ` + ifName + ` == "eth1"`,
		ifName + ` != "a=b" && ` + ifName + `="c\"=d"`: `write ==, as in ` + ifName + ` != "a=b" && ` + ifName +
			`=="c\"=d"`,
		ifName + ` = `:    "Syntax error",
		ifName + ` === 1`: "Syntax error",
		ifName + ` = 1 +`: "Syntax error",
	} {
		err := CheckSelector(expression)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "write ==") != strings.HasPrefix(want, "write ==") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	if err := CheckSelector(ifName + ` == "a=b"`); err != nil {
		t.Error(err)
	}
	if err := CheckAttribute(ifName + ` = "a" ? "x" : "y"`); err == nil || !strings.Contains(err.Error(), "write ==") {
		t.Errorf("computed attribute: %v", err)
	}
}
