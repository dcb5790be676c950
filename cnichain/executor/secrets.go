package executor

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

// shortestSecret is the minimum length of a secret. Shorter values could match unrelated text by chance.
const shortestSecret = 4

// secrets lists the values in a plugin's configuration that must not appear in messages. Plugins may print anything,
// and their errors are copied to events and conditions, which many users can read.
type secrets []string

// secretsOf returns the values of all keys whose names suggest a secret.
func secretsOf(stdin []byte) secrets {
	if !sanitize.MayHaveSecrets(stdin) { // fast path: secretsOf runs after every plugin call
		return nil
	}
	config, err := template.DecodeJSON(stdin)
	if err != nil {
		return nil
	}
	var found secrets
	found.collect(config, sanitize.SecretKeys(), false)
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) }) // a secret may be part of a longer one
	return slices.Compact(found)
}

// collect adds all strings below a secret key, at any depth. It ignores numbers and booleans, which could match
// unrelated text.
func (s *secrets) collect(value any, keys *regexp.Regexp, secret bool) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			s.collect(value[key], keys, secret || keys.MatchString(key))
		}
	case []any:
		for i := range value {
			s.collect(value[i], keys, secret)
		}
	case string:
		if secret && len(value) >= shortestSecret {
			*s = append(*s, value)
		}
	}
}

// text removes the secrets from a string.
func (s secrets) text(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, sanitize.Redacted)
	}
	return text
}

// output removes the secrets from a plugin's output.
func (s secrets) output(output CallOutput) CallOutput {
	if len(s) > 0 {
		output.Stdout, output.Stderr = []byte(s.text(string(output.Stdout))), []byte(s.text(string(output.Stderr)))
	}
	return output
}

// error removes the secrets from an error. The returned error unwraps to the plugin's own error, likewise without the
// secrets, and to the reason why the call was stopped.
func (s secrets) error(err error) error {
	if err == nil || len(s) == 0 || s.text(err.Error()) == err.Error() && !errors.As(err, new(*ExecError)) {
		return err
	}
	var failed *ExecError
	if !errors.As(err, &failed) {
		return errors.New(s.text(err.Error()))
	}
	clean := *failed
	clean.Stderr, clean.Err = s.text(failed.Stderr), s.cause(failed.Err)
	return &clean
}

// cause removes the secrets from an error's text. A CNI error keeps its code, which the executor evaluates. Other
// errors are reduced to their text, since a wrapped error would still contain the secrets.
func (s secrets) cause(err error) error {
	var printed *types.Error
	if errors.As(err, &printed) {
		return &types.Error{Code: printed.Code, Msg: s.text(printed.Msg), Details: s.text(printed.Details)}
	}
	if text := s.text(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
