package calllog

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

// Log writes CNI calls to files for users, one directory for each claim and one file for each sandbox, as JSON lines:
// <dir>/<namespace>_<claim>_<uid>/<sandbox>.jsonl. The size of streams and files and the number of sandboxes per pod
// are limited. Values of keys whose names suggest a secret are redacted.
type Log struct {
	dir     string
	onError func(error)
	secret  *regexp.Regexp // sanitize.SecretKeys
	mu      sync.Mutex
}

const (
	// maxStream is the maximum size of each of stdin, stdout and stderr in a line.
	maxStream = 16 << 10
	// maxFile is the size at which a sandbox's file is rotated; one old file is kept.
	maxFile = 1 << 20
)

// New returns a log below dir. onError receives the errors of failed writes.
func New(dir string, onError func(error)) *Log {
	return &Log{dir: dir, onError: onError, secret: sanitize.SecretKeys()}
}

// line is the format of a line in the log.
type line struct {
	Time       time.Time `json:"time"`
	Duration   string    `json:"duration"`
	Claim      string    `json:"claim"`
	Pod        string    `json:"pod"`
	Step       string    `json:"step"`
	Instance   int       `json:"instance,omitempty"`
	Command    string    `json:"command"`
	Plugin     string    `json:"plugin"`
	CNIVersion string    `json:"cniVersion"`
	Env        []string  `json:"env"`
	Stdin      any       `json:"stdin"`
	Stdout     any       `json:"stdout,omitempty"`
	Stderr     string    `json:"stderr,omitempty"`
	ExitCode   int       `json:"exitCode"`
	Error      string    `json:"error,omitempty"`
}

// Record implements [executor.Recorder]. It appends the call to the file of its sandbox.
func (l *Log) Record(call executor.Call) {
	line := line{
		Time: call.Time.UTC(), Duration: call.Duration.Round(time.Microsecond).String(),
		Claim: call.Claim.String(), Pod: call.Pod, Step: call.Step, Instance: call.Instance,
		Command: call.Command, Plugin: call.Plugin, CNIVersion: call.CNIVersion, Env: call.Env,
		Stdin: l.stream(call.Stdin), Stdout: l.stream(call.Output.Stdout),
		Stderr: sanitize.Shorten(string(call.Output.Stderr), maxStream), ExitCode: call.Output.ExitCode,
	}
	if call.Err != nil {
		line.Error = call.Err.Error()
	}
	encoded, err := json.Marshal(line)
	if err == nil {
		err = l.write(call.Claim, call.SandboxID, append(encoded, '\n'))
	}
	if err != nil {
		l.onError(fmt.Errorf("cannot write the CNI log of claim %s: %w", call.Claim, err))
	}
}

// Dir returns the directory of a claim's files.
func (l *Log) Dir(claim cnichain.Claim) string {
	return filepath.Join(l.dir, folderName(claim))
}

func (l *Log) write(claim cnichain.Claim, sandboxID string, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(l.Dir(claim), 0o700); err != nil {
		return err
	}
	// Base ensures that the path stays inside the directory, since the sandbox ID comes from the runtime.
	path := filepath.Join(l.Dir(claim), filepath.Base(sandboxID)+suffix)
	info, err := os.Stat(path)
	if err == nil && info.Size()+int64(len(line)) > maxFile {
		// This replaces the older of the two files, so a sandbox never has more than two.
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	}
	isNew := os.IsNotExist(err)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(line)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil && isNew {
		err = removeSandboxes(l.Dir(claim), func(_ *sandbox, younger int) bool {
			return younger >= maxSandboxes
		})
	}
	return err
}

// stream returns a JSON document without secrets, or other data as text.
func (l *Log) stream(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	value, err := template.DecodeJSON(data)
	if err != nil {
		return sanitize.Shorten(string(data), maxStream)
	}
	redacted := sanitize.Redact(value, l.secret)
	if encoded, err := json.Marshal(redacted); err != nil || len(encoded) > maxStream {
		return sanitize.Shorten(string(encoded), maxStream)
	}
	return redacted
}

// Redact returns a JSON document in which the values of keys whose names suggest a secret are redacted, as in the log.
func Redact(document []byte) ([]byte, error) {
	value, err := template.DecodeJSON(document)
	if err != nil {
		return nil, fmt.Errorf("cannot remove secrets: %w", err)
	}
	return json.MarshalIndent(sanitize.Redact(value, sanitize.SecretKeys()), "", "  ")
}

// Sweep removes the directories of claims for which keep returns false, unless they were written to after the given
// time. In the other directories, it removes the files of sandboxes that were not written to after that time, except
// for the last sandbox of each pod.
func (l *Log) Sweep(before time.Time, keep func(claimUID string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, err := l.old(before, keep)
	if err != nil {
		return err
	}
	for _, folder := range old {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return l.sweepKept(before)
}

// sweepKept removes old sandboxes from the directories that are kept. The caller holds the lock.
func (l *Log) sweepKept(before time.Time) error {
	folders, err := filepath.Glob(filepath.Join(l.dir, "*_*_*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		err := removeSandboxes(folder, func(box *sandbox, younger int) bool {
			return younger > 0 && box.last.Before(before)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Old returns the directories that Sweep would remove.
func (l *Log) Old(before time.Time, keep func(claimUID string) bool) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old(before, keep)
}

// old is Old for callers that hold the lock, which prevents concurrent writes.
func (l *Log) old(before time.Time, keep func(claimUID string) bool) ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var old []string
	for _, entry := range entries {
		_, uid, found := cutLast(entry.Name(), "_")
		folder := filepath.Join(l.dir, entry.Name())
		if entry.IsDir() && found && !keep(uid) && untouchedSince(folder, before) {
			old = append(old, folder)
		}
	}
	return old, err
}

// untouchedSince checks the modification times of the files: appending to a file does not change its directory.
func untouchedSince(dir string, before time.Time) bool {
	files, err := os.ReadDir(dir)
	for _, file := range files {
		info, infoErr := file.Info()
		if infoErr != nil || !info.ModTime().Before(before) {
			return false
		}
	}
	return err == nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
