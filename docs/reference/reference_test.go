package reference

import "testing"

// Text in angle brackets is displayed instead of being parsed as HTML.
func TestLiteral(t *testing.T) {
	have := string(literal([]byte("a <name> and `<code>` of </b>, 1 < 2\n```\n<fence>\n```\n<end>\n    <indented>\n")))
	want := "a \\<name> and `<code>` of \\</b>, 1 < 2\n```\n<fence>\n```\n\\<end>\n    <indented>\n"
	if have != want {
		t.Errorf("got:\n%s\nwant:\n%s", have, want)
	}
}
