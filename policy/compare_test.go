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

// Who leaves out the domain of an attribute is told the whole expression.
func TestMissingDomainIsNamed(t *testing.T) {
	const full = `device.attributes["dra.networking"].`
	for expression, want := range map[string]string{
		`ifName == "l0"`:        `write ` + full + `ifName == "l0"`,
		`device.ifName == "l0"`: `write ` + full + `ifName == "l0"`,
		`type == "vf" && device.pfName in ["ifName", 'a\'type']`: `write ` + full + `type == "vf" && ` + full +
			`pfName in ["ifName", 'a\'type']`,
		`device.driver == "x" && mtu > 1500`: `write device.driver == "x" && ` + full + `mtu > 1500`,
		full + `type == "vf" && mtu > 1500`:  `write ` + full + `type == "vf" && ` + full + `mtu > 1500`,
		`colour == "red"`:                    "undeclared reference",
		`device.colour == "red"`:             "undefined field",
		`device.`:                            "Syntax error",
		`ifName == "l0`:                      "Syntax error",
		`ifName == "\`:                       "Syntax error",
	} {
		if err := CheckSelector(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
}
