package policy

import (
	"strings"
	"testing"
)

// The error contains the most common mistake and the correction; for other mistakes, it contains the compiler's
// message.
func TestSingleEqualsIsNamed(t *testing.T) {
	const ifName = `device.attributes["dra.networking"].ifName`
	for expression, want := range map[string]string{
		ifName + ` = "eth1"`: `== does; write ` + ifName + ` == "eth1"`,
		ifName + ` != "a=b" && ` + ifName + `="c\"=d"`: `== does; write ` + ifName + ` != "a=b" && ` + ifName +
			`=="c\"=d"`,
		ifName + ` = `:    "Syntax error",
		ifName + ` === 1`: "Syntax error",
		ifName + ` = 1 +`: "Syntax error",
	} {
		err := CheckSelector(expression)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "; write ") != strings.Contains(want, "; write ") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	if err := CheckSelector(ifName + ` == "a=b"`); err != nil {
		t.Error(err)
	}
	if err := CheckAttribute(ifName + ` = "a" ? "x" : "y"`); err == nil || !strings.Contains(err.Error(), "== does") {
		t.Errorf("computed attribute: %v", err)
	}
}

// If the domain of an attribute is missing, the error contains the whole expression.
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

// The error mentions syntax of other languages and the correction; the compiler's message alone would only mention
// tokens.
func TestOtherLanguagesAreNamed(t *testing.T) {
	const words = "cannot compile the expression: compilation failed"
	const operators = "; and, or and not are written &&, || and !( )"
	full := strings.NewReplacer("@", `device.attributes["dra.networking"].`)
	for _, test := range [][2]string{
		{`@ifName.startswith("eth")`, `string functions are startsWith, endsWith, contains, matches and ` +
			`lowerAscii; write @ifName.startsWith("eth")`},
		{`@ifName.HasPrefix("eth")`, `; write @ifName.startsWith("eth")`},
		{`@ifName.ends_with("np0")`, `; write @ifName.endsWith("np0")`},
		{`@ifName in "eth0"`, `in needs a list, such as ["eth0"]; write @ifName in ["eth0"]`},
		{`device.attributes.ifName == "l0"`, `are read by their domain; write @ifName == "l0"`},
		{`device.attributes["ifName"] == "l0" || attributes.mtu > 1500`, `; write @ifName == "l0" || @mtu > 1500`},
		{`attributes["dra.networking"].mtu > 1500`, `; write @mtu > 1500`},
		{`device.attribute.type == "pf"`, `; write @type == "pf"`},
		{`driver == "virtio_net"`, `; write @driver == "virtio_net"`},
		{`@type == "vf" and @pfName == "and"`, `&&, || and !( ); write @type == "vf" && @pfName == "and"`},
		{`@type == "vf" OR @type == "pf"`, `; write @type == "vf" || @type == "pf"`},
		{`not (@type == "vf")`, `; write !(@type == "vf")`},
		{`@type == "vf" and not(@mtu == 9000)`, `; write @type == "vf" && !(@mtu == 9000)`},
		{`type = "vf" and ifName.startswith("eth") and pfName in 'p0'`,
			`; write @type == "vf" && @ifName.startsWith("eth") && @pfName in ['p0']`},
		{`not @type == "vf"`, operators}, // the operand of not is ambiguous
		{`device.attributes["dra.networking"].?ifName.orValue("") = "eth0"`,
			`; write device.attributes["dra.networking"].?ifName.orValue("") == "eth0"`},
		{`@type == "vf" and ["a"].exists(driver, driver == @ifName)`,
			`; write @type == "vf" && ["a"].exists(driver, driver == @ifName)`},
		{`@ifName.startswith("eth") && colour`, `== "bridge"; string functions are`},
		{`@ifName.startswith("r") and colour`, `== "bridge"` + operators + ", and string functions"},
		{`device.attributes.colour == "red"`, words},
	} {
		expression, want := full.Replace(test[0]), full.Replace(test[1])
		for name, check := range map[string]func(string) error{"policy": CheckSelector, "class": CheckClassSelector} {
			if err := check(expression); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", name, expression, err, want)
			}
		}
	}
}
