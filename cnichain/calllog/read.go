package calllog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Call is a call in the log. It defines the format of a line.
type Call struct {
	Time     time.Time `json:"time"`
	Duration Duration  `json:"duration"`
	Claim    string    `json:"claim"`
	ClaimUID string    `json:"claimUID"`
	Pod      string    `json:"pod"`
	Sandbox  string    `json:"sandbox"`
	Step     string    `json:"step"`
	Instance int       `json:"instance,omitempty"`
	Command  string    `json:"command"`
	Plugin   string    `json:"plugin"`
	// CNIVersion is the CNI version in the configuration; empty for calls without a configuration.
	CNIVersion string `json:"cniVersion,omitempty"`
	// Env is the plugin's environment.
	Env      []string        `json:"env,omitempty"`
	ExitCode int             `json:"exitCode"`
	Stdin    json.RawMessage `json:"stdin,omitempty"`
	Stdout   json.RawMessage `json:"stdout,omitempty"`
	Stderr   string          `json:"stderr,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// Duration is a duration that is encoded as text in Go's format, for example "13.2ms".
type Duration time.Duration

// UnmarshalText parses the output of MarshalText.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Claims returns the claims in a log, as sorted namespace/name strings.
func Claims(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_*_*", "*"+suffix))
	var claims []string
	for _, file := range files {
		if claim := firstCall(file).Claim; claim != "" {
			claims = append(claims, claim)
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims), err
}

// Read returns a claim's calls from the log in chronological order, including calls for earlier claims with the same
// name. If some lines are unreadable, for example after a crash, it returns an error in addition to the readable calls.
func Read(dir, namespace, name string) ([]Call, error) {
	// Namespaces and names cannot contain "_" or characters that have a special meaning in patterns.
	files, err := filepath.Glob(filepath.Join(dir, folderPrefix(namespace, name)+"*", "*"+suffix+"*"))
	problems := []error{err}
	var calls []Call
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // a file of the log
		if err != nil {
			problems = append(problems, err)
		}
		sandbox, _, _ := strings.Cut(filepath.Base(file), suffix)
		_, uid, _ := cutLast(filepath.Base(filepath.Dir(file)), "_")
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			call := Call{Sandbox: sandbox, ClaimUID: uid}
			if err := json.Unmarshal([]byte(line), &call); err != nil {
				problems = append(problems, fmt.Errorf("%s:%d: %w", file, number, err))
			} else if call.Claim == namespace+"/"+name { // the prefix of a long name may match other claims
				calls = append(calls, call)
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return a.Time.Compare(b.Time) })
	return calls, errors.Join(problems...)
}
