package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// calls collects the entries of the call log.
type calls []Call

func (c *calls) Record(call Call) { *c = append(*c, call) }

// Errors are copied to events and conditions. If a plugin prints a secret from its configuration, the secret is removed
// from the error and from the call log.
func TestSecretsAreNotRepeated(t *testing.T) {
	const secret, stdin = "hunter2-of-the-fabric",
		`{"type":"x","fabric":{"apiToken":"hunter2-of-the-fabric","user":"admin"},"pin":{"secrets":["short","abc"]}}`
	for name, script_ := range map[string]string{
		"stderr": `echo "cannot log in with hunter2-of-the-fabric" >&2; exit 1`,
		"own error": `echo '{"code":110,"msg":"no login with hunter2-of-the-fabric","details":"as admin, ` +
			`short"}'; exit 1`,
		"other text": `echo "hunter2-of-the-fabric is wrong"; exit 3`,
		"no result":  `echo '{"cniVersion":"1.0.0"}"hunter2-of-the-fabric"'`,
	} {
		t.Run(name, func(t *testing.T) {
			var log calls
			executor := New(Options{Exec: PluginExec{}, Log: &log})
			record := &StepRecord{Step: cnichain.PlanStep{Type: "x", Path: script(t, script_), CNIVersion: "1.0.0"},
				Stdin: []byte(stdin)}
			_, err := executor.callAdd(context.Background(), &Attachment{}, record)
			if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "short") {
				t.Errorf("unexpected error: %v", err)
			}
			var printed *types.Error
			if errors.As(err, &printed) != (name == "own error") || printed != nil &&
				(printed.Code != 110 || strings.Contains(printed.Msg, secret) ||
					!strings.Contains(printed.Details, "admin")) {
				t.Errorf("the plugin's error has a secret or lost its code or details: %+v", printed)
			}
			if len(log) != 1 || strings.Contains(string(log[0].Output.Stdout)+string(log[0].Output.Stderr), secret) ||
				log[0].Err != nil && strings.Contains(log[0].Err.Error(), secret) {
				t.Errorf("the call log has a secret or lacks the call: %+v", log)
			}
		})
	}
}

// Keys are compared after decoding, so JSON escapes cannot hide them.
func TestSecretsOfEscapedKeys(t *testing.T) {
	for stdin, want := range map[string]secrets{
		`{"type":"x","mtu":1400}`:                        nil,
		`{"type":"x","pass\u0077ord":"hunter2"}`:         {"hunter2"},
		`{"type":"x","fabric":{"A\u0050I-key":"12345"}}`: {"12345"},
		`{"type":"token","user":"admin"}`:                nil,
		`{"Passwords":{"a":"first","b":["second"]}}`:     {"second", "first"},
	} {
		if got := secretsOf([]byte(stdin)); !slices.Equal(got, want) {
			t.Errorf("secrets of %s = %q, want %q", stdin, got, want)
		}
	}
}
