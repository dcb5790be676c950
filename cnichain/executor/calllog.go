package executor

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
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
)

// Call is one CNI call that was made.
type Call struct {
	Time       time.Time
	Duration   time.Duration
	Claim      cnichain.Claim
	SandboxID  string
	Pod        string
	Step       string
	Instance   int
	Command    string
	Plugin     string
	CNIVersion string
	Env        []string
	Stdin      json.RawMessage
	Output     CallOutput
	Err        error
}

// Recorder is told about every CNI call after it was made. Implementations are safe for concurrent use, and must not
// fail a chain: what they can't write is lost.
type Recorder interface {
	Record(Call)
}

type discard struct{}

func (discard) Record(Call) {}

// CallLog writes CNI calls to files for people, one folder for each claim and one file for each sandbox, as JSON lines:
// <dir>/<namespace>_<claim>_<uid>/<sandbox>.jsonl. Streams, files and the sandboxes of a pod are capped, values of
// secret-looking keys are replaced.
type CallLog struct {
	dir     string
	onError func(error)
	secret  *regexp.Regexp // of secretKeys
	mu      sync.Mutex
}

const (
	// maxLoggedStream bounds each of stdin, stdout and stderr in a line.
	maxLoggedStream = 16 << 10
	// maxLogFile is when a sandbox's file is rotated; one old file is kept.
	maxLogFile = 1 << 20
)

// NewCallLog makes a log below dir. onError is told what could not be written.
func NewCallLog(dir string, onError func(error)) *CallLog {
	return &CallLog{dir: dir, onError: onError, secret: secretKeys()}
}

// logLine is the form of a line.
type logLine struct {
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

// Record appends the call to its file.
func (l *CallLog) Record(call Call) {
	line := logLine{
		Time: call.Time.UTC(), Duration: call.Duration.Round(time.Microsecond).String(),
		Claim: call.Claim.String(), Pod: call.Pod, Step: call.Step, Instance: call.Instance,
		Command: call.Command, Plugin: call.Plugin, CNIVersion: call.CNIVersion, Env: call.Env,
		Stdin: l.stream(call.Stdin), Stdout: l.stream(call.Output.Stdout),
		Stderr: shorten(string(call.Output.Stderr), maxLoggedStream), ExitCode: call.Output.ExitCode,
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

// Dir is the folder of a claim's files.
func (l *CallLog) Dir(claim cnichain.Claim) string {
	return filepath.Join(l.dir, logFolder(claim))
}

func (l *CallLog) write(claim cnichain.Claim, sandboxID string, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(l.Dir(claim), 0o700); err != nil {
		return err
	}
	// Base keeps an ID, which comes from the runtime, from leading out of the folder.
	path := filepath.Join(l.Dir(claim), filepath.Base(sandboxID)+logSuffix)
	info, err := os.Stat(path)
	if err == nil && info.Size()+int64(len(line)) > maxLogFile {
		// This replaces the older of two files, so a sandbox never has more.
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
		err = removeSandboxes(l.Dir(claim), func(_ *loggedSandbox, younger int) bool {
			return younger >= maxLoggedSandboxes
		})
	}
	return err
}

// stream shows a JSON document as one, redacted; anything else as text.
func (l *CallLog) stream(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	value, err := template.DecodeJSON(data)
	if err != nil {
		return shorten(string(data), maxLoggedStream)
	}
	redacted := redact(value, l.secret)
	if encoded, err := json.Marshal(redacted); err != nil || len(encoded) > maxLoggedStream {
		return shorten(string(encoded), maxLoggedStream)
	}
	return redacted
}

func redact(value any, secret *regexp.Regexp) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if secret.MatchString(key) {
				value[key] = redacted
				continue
			}
			value[key] = redact(value[key], secret)
		}
	case []any:
		for i := range value {
			value[i] = redact(value[i], secret)
		}
	}
	return value
}

// Redact returns a JSON document without the values of keys that look as if they were secret, as the call log has it.
func Redact(document []byte) ([]byte, error) {
	value, err := template.DecodeJSON(document)
	if err != nil {
		return nil, fmt.Errorf("cannot remove secrets: %w", err)
	}
	return json.MarshalIndent(redact(value, secretKeys()), "", "  ")
}

// Sweep removes the folders of claims for which keep is false and that were not written to since before. Of the others
// it removes the files of sandboxes that were not written to since before, but for the last of each pod.
func (l *CallLog) Sweep(before time.Time, keep func(claimUID string) bool) error {
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

// sweepKept is called with the lock held.
func (l *CallLog) sweepKept(before time.Time) error {
	folders, err := filepath.Glob(filepath.Join(l.dir, "*_*_*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		err := removeSandboxes(folder, func(box *loggedSandbox, younger int) bool {
			return younger > 0 && box.last.Before(before)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Old returns the folders that Sweep would remove.
func (l *CallLog) Old(before time.Time, keep func(claimUID string) bool) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old(before, keep)
}

// old is called with the lock held: nothing is written to a folder meanwhile.
func (l *CallLog) old(before time.Time, keep func(claimUID string) bool) ([]string, error) {
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

// untouchedSince looks at the files: appending to one does not change its folder.
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

// maxWaiting is how many calls wait to be recorded, at most, and maxWaitingBytes how many bytes of streams they have
// together: a plugin may print a megabyte.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Background passes calls on to a [Recorder] in their order, while chains go on: a pod need not wait until what was
// done for it can be read. It is safe for concurrent use. A process that is killed loses what waits, which a disk that
// works has had within a millisecond.
type Background struct {
	recorder Recorder

	mu      sync.Mutex
	changed *sync.Cond
	waiting []Call
	bytes   int  // of the streams of those that wait
	writing bool // a goroutine passes calls on
}

// NewBackground returns what passes calls on to a recorder.
func NewBackground(recorder Recorder) *Background {
	b := &Background{recorder: recorder}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// Record implements [Recorder]. It waits only while too many calls wait.
func (b *Background) Record(call Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.isFull(&call) {
		b.changed.Wait()
	}
	b.waiting, b.bytes = append(b.waiting, call), b.bytes+streamBytes(&call)
	if !b.writing {
		b.writing = true
		go b.write()
	}
}

// write passes on what waits, and ends.
func (b *Background) write() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		next := b.waiting[0]
		b.waiting, b.bytes = b.waiting[1:], b.bytes-streamBytes(&next)
		b.changed.Broadcast()
		b.mu.Unlock()
		b.recorder.Record(next)
		b.mu.Lock()
	}
	b.writing, b.waiting = false, nil // else the array keeps what was passed on
	b.changed.Broadcast()
}

// isFull reports whether a call has to wait to be taken. One that has more bytes than all may have is taken alone.
func (b *Background) isFull(next *Call) bool {
	return len(b.waiting) >= maxWaiting || len(b.waiting) > 0 && b.bytes+streamBytes(next) > maxWaitingBytes
}

func streamBytes(call *Call) int {
	return len(call.Stdin) + len(call.Output.Stdout) + len(call.Output.Stderr)
}

// Flush returns when everything has been passed on.
func (b *Background) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.changed.Wait()
	}
}
