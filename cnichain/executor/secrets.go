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

// shortestSecret is the length below which values would be found in any text by chance.
const shortestSecret = 4

// secrets are the values of a plugin's configuration that must not appear in messages: errors go to events and
// conditions, which many users can read, and plugins may print anything.
type secrets []string

// secretsOf finds the values of keys that look as if they were secret.
func secretsOf(stdin []byte) secrets {
	if !sanitize.MayHaveSecrets(stdin) { // asked after each call of a plugin
		return nil
	}
	config, err := template.DecodeJSON(stdin)
	if err != nil {
		return nil
	}
	var found secrets
	found.collect(config, sanitize.SecretKeys(), false)
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	return slices.Compact(found)
}

// collect takes all strings below a secret key, however deep. Numbers and booleans are left out: they would be found in
// any text.
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

// text returns a text without the secrets.
func (s secrets) text(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, sanitize.Redacted)
	}
	return text
}

// output returns what a plugin printed without the secrets.
func (s secrets) output(output CallOutput) CallOutput {
	if len(s) > 0 {
		output.Stdout, output.Stderr = []byte(s.text(string(output.Stdout))), []byte(s.text(string(output.Stderr)))
	}
	return output
}

// error returns an error without the secrets. It unwraps to the plugin's own, without them, and to what ended the call.
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

// cause returns an error without the secrets in its text. A CNI error keeps its code, which the engine evaluates. Other
// errors are reduced to their text, since any wrapped error contains the secret, too.
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
