package calllog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/google/go-cmp/cmp"
)

func TestCallLog(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	claim := cnichain.Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	call := executor.Call{Time: time.Unix(1, 0), Claim: claim, SandboxID: "sb", Command: "ADD", Step: "link",
		Stdin:  json.RawMessage(`{"type":"x","auth":[{"Password":"hunter2"}],"psk":"hunter2"}`),
		Output: executor.CallOutput{Stdout: []byte("not json hunter"), Stderr: []byte(strings.Repeat("e", 100000))}}
	log.Record(call)
	data, err := os.ReadFile(filepath.Join(dir, "ns_c_u-1", "sb.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{`"Password":"(redacted)"`, `"psk":"(redacted)"`, `"stdout":"not json hunter"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing from %.300s", want, text)
		}
	}
	if strings.Contains(text, "hunter2") || len(text) > 20000 {
		t.Errorf("log contains the secret or is too long (%d bytes): %.300s", len(text), text)
	}
	call.Output.Stderr = nil
	call.Env = []string{strings.Repeat("x", maxFile/2)}
	for range 4 {
		log.Record(call)
	}
	entries, _ := os.ReadDir(log.Dir(claim))
	if len(entries) != 2 {
		t.Errorf("the log has %d files, want the current file and one old file", len(entries))
	}
	future := time.Now().Add(time.Hour)
	if err := log.Sweep(future, func(uid string) bool { return uid == "u-1" }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log.Dir(claim)); err != nil {
		t.Errorf("the log of a prepared claim was removed: %v", err)
	}
	if err := log.Sweep(future, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log.Dir(claim)); !os.IsNotExist(err) {
		t.Errorf("the log of a released claim was not removed: %v", err)
	}
}

// Recorded calls can be read even if a crash truncated an earlier line.
func TestCallLogIsRead(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	claim := cnichain.Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	log.Record(executor.Call{Time: time.Unix(2, 0), Duration: 13*time.Millisecond + 200*time.Microsecond, Claim: claim,
		SandboxID: "late", Command: "DEL", Step: "link"})
	log.Record(executor.Call{Time: time.Unix(1, 0), Claim: claim, SandboxID: "early", Pod: "ns/p", Command: "ADD",
		Plugin: "/opt/macvlan", Step: "link",
		Output: executor.CallOutput{Stdout: []byte(`{"ips":[]}`)}, Err: errors.New("no")})
	log.Record(executor.Call{Time: time.Unix(1, 0), Claim: cnichain.Claim{Namespace: "ns", Name: "c-2", UID: "u-2"},
		SandboxID: "x"})
	calls, err := Read(dir, "ns", "c")
	want := []Call{
		{Time: time.Unix(1, 0).UTC(), Claim: "ns/c", ClaimUID: "u-1", Pod: "ns/p", Sandbox: "early", Step: "link",
			Command: "ADD", Plugin: "/opt/macvlan",
			Stdout: json.RawMessage(`{"ips":[]}`), Error: "no"},
		{Time: time.Unix(2, 0).UTC(), Duration: Duration(13200 * time.Microsecond), Claim: "ns/c", ClaimUID: "u-1",
			Sandbox: "late", Step: "link", Command: "DEL"},
	}
	if diff := cmp.Diff(want, calls); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if claims, err := Claims(dir); err != nil || strings.Join(claims, " ") != "ns/c ns/c-2" {
		t.Errorf("claims = %v, %v, want ns/c and ns/c-2", claims, err)
	}
	file := filepath.Join(log.Dir(claim), "late.jsonl")
	if err := os.WriteFile(file, []byte(`{"time":"1970-01-01T00:00:03Z","durat`), 0o600); err != nil {
		t.Fatal(err)
	}
	if calls, err = Read(dir, "ns", "c"); err == nil || !strings.Contains(err.Error(), "late.jsonl:1: ") ||
		len(calls) != 1 {
		t.Errorf("got %d calls, %v, want one", len(calls), err)
	}
}

// A pod that cannot be attached gets a new sandbox for each attempt. The log keeps only the most recent sandboxes.
func TestCallLogOfAPodThatKeepsFailing(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	claim := cnichain.Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	begin := time.Now().Add(-10 * time.Hour)
	const attempts = 3 * maxSandboxes
	for i := range attempts {
		start, sandbox := begin.Add(time.Duration(i)*time.Minute), fmt.Sprintf("bad%02d", i)
		log.Record(executor.Call{Time: start, Claim: claim, Pod: "ns/bad", SandboxID: sandbox, Command: "ADD"})
		if err := os.Chtimes(filepath.Join(log.Dir(claim), sandbox+".jsonl"), start, start); err != nil {
			t.Fatal(err)
		}
	}
	calls, err := Read(dir, "ns", "c")
	if err != nil || len(calls) != maxSandboxes || calls[0].Sandbox != fmt.Sprintf("bad%02d", attempts-maxSandboxes) {
		t.Errorf("after %d attempts, the log contained %d calls (error %v): %+v", attempts, len(calls), err, calls)
	}
}

// Kubernetes allows longer names than the file system does. The log of a claim whose name is too long for the file
// system can still be found by the full name.
func TestCallLogOfLongNames(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	namespace := strings.Repeat("n", 63)
	uids := []string{strings.Repeat("1", 36), strings.Repeat("2", 36), strings.Repeat("3", 36)}
	names := []string{strings.Repeat("c", 252) + "1", strings.Repeat("c", 252) + "2", "short"}
	for i, name := range names {
		log.Record(executor.Call{Claim: cnichain.Claim{Namespace: namespace, Name: name, UID: uids[i]}, SandboxID: "sb",
			Pod: "ns/p", Command: "ADD"})
	}
	want := []string{namespace + "/" + names[0], namespace + "/" + names[1], namespace + "/short"}
	if claims, err := Claims(dir); err != nil || !cmp.Equal(claims, want) {
		t.Errorf("claims = %q, %v, want all three", claims, err)
	}
	for i, name := range names {
		calls, err := Read(dir, namespace, name)
		if err != nil || len(calls) != 1 || calls[0].Claim != namespace+"/"+name || calls[0].ClaimUID != uids[i] {
			t.Errorf("calls of %s = %+v, %v, want one", name, calls, err)
		}
	}
	var asked []string
	if err := log.Sweep(time.Now().Add(time.Hour),
		func(uid string) bool { asked = append(asked, uid); return false }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || !cmp.Equal(asked, uids) {
		t.Errorf("remaining directories: %v, %v; keep was called with %q", left, err, asked)
	}
}

// slowRecorder blocks until it is allowed to record a call.
type slowRecorder struct {
	let   chan struct{}
	mu    sync.Mutex
	steps []string
}

func (r *slowRecorder) Record(call executor.Call) {
	<-r.let
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, call.Step)
}

// A slow recorder does not delay callers until too many calls are waiting, and no call is lost or reordered.
func TestBackground(t *testing.T) {
	slow := &slowRecorder{let: make(chan struct{})}
	background := NewBackground(slow)
	background.Flush() // without calls
	const calls = 3*maxWaiting + 1
	blocked := make(chan int)
	go func() {
		for i := range calls {
			background.Record(executor.Call{Step: fmt.Sprint(i)})
			if i == maxWaiting-1 {
				blocked <- i // this many calls are accepted before any is written
			}
		}
		close(blocked)
	}()
	<-blocked
	close(slow.let)
	<-blocked
	background.Flush()
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if len(slow.steps) != calls {
		t.Fatalf("recorded %d calls, want %d", len(slow.steps), calls)
	}
	for i, step := range slow.steps {
		if step != fmt.Sprint(i) {
			t.Fatalf("call %d is for step %s, want them in order", i, step)
		}
	}
}

// A few calls with large output have to wait, just like many calls with small output.
func TestBackgroundIsBounded(t *testing.T) {
	huge := executor.Call{Output: executor.CallOutput{Stdout: make([]byte, maxWaitingBytes)}, Stdin: []byte("{}")}
	slow := &slowRecorder{let: make(chan struct{})}
	background := NewBackground(slow)
	background.Record(huge)
	if background.room.TryAcquire(1) {
		t.Error("another call was accepted while a large one was waiting")
	}
	close(slow.let)
	background.Record(huge)
	background.Flush()
	if len(slow.steps) != 2 {
		t.Errorf("recorded %d calls, want 2", len(slow.steps))
	}
}

func closedChannel() chan struct{} {
	channel := make(chan struct{})
	close(channel)
	return channel
}

// All calls from several concurrent chains are passed on, and the calls of each chain stay in order.
func TestBackgroundOfManyChains(t *testing.T) {
	recorder := &slowRecorder{let: closedChannel()}
	background := NewBackground(recorder)
	var chains sync.WaitGroup
	for chain := range 8 {
		chains.Go(func() {
			for i := range 100 {
				background.Record(executor.Call{Step: fmt.Sprint(chain), Instance: i})
			}
			background.Flush()
		})
	}
	chains.Wait()
	if got := len(recorder.steps); got != 800 {
		t.Errorf("recorded %d calls, want 800", got)
	}
}
