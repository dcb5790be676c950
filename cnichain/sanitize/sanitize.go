// Package sanitize prepares the input and output of CNI plugins for display: bounded, valid UTF-8, and without secrets.
//
// Invariant: it imports none of the driver's other packages.
package sanitize

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Redacted is the text that replaces a secret.
const Redacted = "(redacted)"

// secretWords returns the lowercase words that indicate that a key's value is a secret. None of them contains
// characters that are special in a regular expression.
func secretWords() []string {
	return []string{"passw", "secret", "token", "credential", "private", "apikey", "api-key", "psk"}
}

var secretKeys = regexp.MustCompile("(?i)" + strings.Join(secretWords(), "|"))

// SecretKeys returns a pattern that matches the keys whose values only root should see. These values must appear
// neither in errors nor in the call log.
func SecretKeys() *regexp.Regexp { return secretKeys }

// MayHaveSecrets reports whether a key in a JSON document may match SecretKeys. It returns false for most
// configurations, and is a hundred times faster than decoding the document. It returns true for every document with a
// backslash or non-ASCII text, since these may hide a word.
func MayHaveSecrets(document []byte) bool {
	if slices.ContainsFunc(document, func(c byte) bool { return c == '\\' || c >= utf8.RuneSelf }) {
		return true
	}
	lower := bytes.ToLower(document)
	return slices.ContainsFunc(secretWords(), func(word string) bool { return bytes.Contains(lower, []byte(word)) })
}

// Redact replaces the values of matching keys in a decoded JSON document, at any depth, and returns the document. It
// modifies the document in place.
func Redact(value any, keys *regexp.Regexp) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if keys.MatchString(key) {
				value[key] = Redacted
				continue
			}
			value[key] = Redact(value[key], keys)
		}
	case []any:
		for i := range value {
			value[i] = Redact(value[i], keys)
		}
	}
	return value
}

// Shorten truncates a string to the given number of bytes, and replaces invalid UTF-8. Plugins may print anything, but
// the APIs that error messages are sent to accept only UTF-8.
func Shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
