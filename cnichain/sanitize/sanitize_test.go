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

// If MayHaveSecrets returns false, the document must not contain a secret key in any spelling, since it is not decoded.
func TestDocumentsWithoutSecrets(t *testing.T) {
	for document, want := range map[string]bool{
		`{"type":"macvlan","ipam":{"subnet":"10.0.0.0/24"}}`: false, ``: false,
		`{"PassWord":"x"}`: true, `{"a":{"myPSK":"x"}}`: true, `{"API-Key":"x"}`: true, `{"apiKEY":"x"}`: true,
		`{"pass\u0077ord":"x"}`: true, `{"to\u212aen":"x"}`: true, "{\"to\u212aen\":\"x\"}": true,
		"{\"p\u017fk\":\"x\"}": true, `{"type":"token-server"}`: true, // a value, which only decoding can show
	} {
		if got := MayHaveSecrets([]byte(document)); got != want {
			t.Errorf("MayHaveSecrets(%s) = %v, want %v", document, got, want)
		}
	}
	for _, word := range secretWords() {
		for _, key := range []string{word, strings.ToUpper(word), "my" + word + "2"} {
			if !SecretKeys().MatchString(key) || !MayHaveSecrets([]byte(`{"`+key+`":1}`)) {
				t.Errorf("key %q was not recognized as a secret", key)
			}
		}
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", "12345678": "12345678", "123456789": "12345678…", "raw \xff": "raw \uFFFD",
		"1234567é": "1234567…", // characters are not split
	} {
		got := Shorten(text, 8)
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%q was shortened to %q, want %q", text, got, want)
		}
	}
	if got := Shorten(strings.Repeat("\xff", 10), 8); !utf8.ValidString(got) || len(got) > 8+len("…") {
		t.Errorf("%q is longer than the limit or not valid UTF-8", got)
	}
}
