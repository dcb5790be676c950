package reference

import "testing"

// What stands in angle brackets is shown, not taken for an element of HTML.
func TestLiteral(t *testing.T) {
	have := string(literal([]byte("a <name> and `<code>` of </b>, 1 < 2\n```\n<fence>\n```\n<end>\n    <indented>\n")))
	want := "a \\<name> and `<code>` of \\</b>, 1 < 2\n```\n<fence>\n```\n\\<end>\n    <indented>\n"
	if have != want {
		t.Errorf("is:\n%s\nwant:\n%s", have, want)
	}
}
