// Package sanitize makes what CNI plugins are given and print fit to be shown: bounded, valid, and without secrets.
//
// The rule of this package: it imports no other package of the driver.
package sanitize

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Redacted replaces a secret.
const Redacted = "(redacted)"

// secretWords are in the keys of secrets, in lower case. None has a meaning in a regular expression.
func secretWords() []string {
	return []string{"passw", "secret", "token", "credential", "private", "apikey", "api-key", "psk"}
}

var secretKeys = regexp.MustCompile("(?i)" + strings.Join(secretWords(), "|"))

// SecretKeys matches the keys whose values only root should see: neither in errors nor in the call log.
func SecretKeys() *regexp.Regexp { return secretKeys }

// MayHaveSecrets returns false for a JSON document in which no key can match SecretKeys, as in most configurations:
// this is a hundred times faster than decoding the document. A backslash or non-ASCII text may hide a word.
func MayHaveSecrets(document []byte) bool {
	if slices.ContainsFunc(document, func(c byte) bool { return c == '\\' || c >= utf8.RuneSelf }) {
		return true
	}
	lower := bytes.ToLower(document)
	return slices.ContainsFunc(secretWords(), func(word string) bool { return bytes.Contains(lower, []byte(word)) })
}

// Redact replaces the values of keys that match in a decoded JSON document, however deep, and returns the document. It
// changes what it gets.
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

// Shorten bounds a text to so many bytes, and replaces what is not UTF-8, which is refused wherever errors go: plugins
// print what they like.
func Shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
