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
// <dir>/<namespace>_<claim>_<uid>/<sandbox>.jsonl. Stream sizes, file sizes and the number of sandboxes are limited.
// The values of keys whose names suggest a secret are redacted.
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

// New returns a log below dir. onError is called with the error when a write fails.
func New(dir string, onError func(error)) *Log {
	return &Log{dir: dir, onError: onError, secret: sanitize.SecretKeys()}
}

// Record implements [executor.Recorder]. It appends the call to its sandbox's file.
func (l *Log) Record(call executor.Call) {
	logged := Call{
		Time: call.Time.UTC(), Duration: Duration(call.Duration.Round(time.Microsecond)),
		Claim: call.Claim.String(), ClaimUID: call.Claim.UID, Pod: call.Pod, Sandbox: call.SandboxID,
		Step: call.Step, Instance: call.Instance, Command: call.Command, Plugin: call.Plugin,
		CNIVersion: call.CNIVersion, Env: call.Env,
		Stdin: l.stream(call.Stdin), Stdout: l.stream(call.Output.Stdout),
		Stderr: sanitize.Shorten(string(call.Output.Stderr), maxStream), ExitCode: call.Output.ExitCode,
	}
	if call.Err != nil {
		logged.Error = call.Err.Error()
	}
	line, err := json.Marshal(logged)
	if err == nil {
		err = l.write(call.Claim, call.SandboxID, append(line, '\n'))
	}
	if err != nil {
		l.onError(fmt.Errorf("cannot write the CNI log of claim %s: %w", call.Claim, err))
	}
}

// Dir returns the directory that contains a claim's files.
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
		// This replaces the older of the two files, so a sandbox never has more than two files.
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
		err = removeSandboxes(l.Dir(claim))
	}
	return err
}

// stream returns a JSON document with its secrets redacted, and any other data as a JSON string.
func (l *Log) stream(data []byte) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	text := string(data)
	if value, err := template.DecodeJSON(data); err == nil {
		document, err := json.Marshal(sanitize.Redact(value, l.secret))
		if err == nil && len(document) <= maxStream {
			return document
		}
		text = string(document)
	}
	quoted, _ := json.Marshal(sanitize.Shorten(text, maxStream)) // a string can always be marshaled
	return quoted
}

// Redact returns a JSON document in which the values of keys whose names suggest a secret are redacted, just as in the
// log.
func Redact(document []byte) ([]byte, error) {
	value, err := template.DecodeJSON(document)
	if err != nil {
		return nil, fmt.Errorf("cannot remove secrets: %w", err)
	}
	return json.MarshalIndent(sanitize.Redact(value, sanitize.SecretKeys()), "", "  ")
}

// Sweep removes the directories of claims for which keep returns false, except directories with files modified after
// the given time.
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
	return nil
}

// Old returns the directories that Sweep would remove.
func (l *Log) Old(before time.Time, keep func(claimUID string) bool) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old(before, keep)
}

// old is like Old, but the caller must hold the lock, which prevents concurrent writes.
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

// untouchedSince reports whether no file in a directory was modified since the given time. It checks the files, because
// appending to a file does not change the modification time of its directory.
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
