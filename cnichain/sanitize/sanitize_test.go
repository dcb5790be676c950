package sanitize

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestRedact(t *testing.T) {
	document := map[string]any{
		"type": "x", "psk": "hunter2", "apiKey": map[string]any{"id": "hunter2"},
		"auth": []any{map[string]any{"Password": "hunter2", "user": "admin"}, "text", 1.0},
	}
	want := map[string]any{
		"type": "x", "psk": Redacted, "apiKey": Redacted,
		"auth": []any{map[string]any{"Password": Redacted, "user": "admin"}, "text", 1.0},
	}
	if diff := cmp.Diff(any(want), Redact(document, SecretKeys())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", "12345678": "12345678", "123456789": "12345678…", "raw \xff": "raw \uFFFD",
		"1234567é": "1234567…", // no half of a character
	} {
		got := Shorten(text, 8)
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := Shorten(strings.Repeat("\xff", 10), 8); !utf8.ValidString(got) || len(got) > 8+len("…") {
		t.Errorf("%q is not bounded", got)
	}
}
