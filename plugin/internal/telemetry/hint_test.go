package telemetry

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A hint is never shortened, regardless of how long the preceding text is.
func TestHintsAreNotCut(t *testing.T) {
	hint := `run "kubectl netdra trace pod/web" to list all calls`
	for _, text := range []string{"short", strings.Repeat("é", maxMessage)} {
		got := WithHint(text, hint)
		if !strings.HasSuffix(got, "; "+hint) || len(got) > maxMessage+3 || !utf8.ValidString(got) {
			t.Errorf("wrong message of %d bytes: %q", len(got), got)
		}
	}
}
