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
			t.Errorf("%s is missing in %.300s", want, text)
		}
	}
	if strings.Contains(text, "hunter2") || len(text) > 20000 {
		t.Errorf("logged %d bytes: %.300s", len(text), text)
	}
	call.Output.Stderr = nil
	call.Env = []string{strings.Repeat("x", maxFile/2)}
	for range 4 {
		log.Record(call)
	}
	entries, _ := os.ReadDir(log.Dir(claim))
	if len(entries) != 2 {
		t.Errorf("%d files, want the current and one old one", len(entries))
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
		t.Errorf("the log of a released claim still exists: %v", err)
	}
}

// Recorded calls can be read, even after a line that was truncated by a crash.
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
			Command: "ADD", Plugin: "/opt/macvlan", Stdin: json.RawMessage("null"),
			Stdout: json.RawMessage(`{"ips":[]}`), Error: "no"},
		{Time: time.Unix(2, 0).UTC(), Duration: Duration(13200 * time.Microsecond), Claim: "ns/c", ClaimUID: "u-1",
			Sandbox: "late", Step: "link", Command: "DEL", Stdin: json.RawMessage("null")},
	}
	if diff := cmp.Diff(want, calls); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if claims, err := Claims(dir); err != nil || strings.Join(claims, " ") != "ns/c ns/c-2" {
		t.Errorf("claims are %v, %v", claims, err)
	}
	file := filepath.Join(log.Dir(claim), "late.jsonl")
	if err := os.WriteFile(file, []byte(`{"time":"1970-01-01T00:00:03Z","durat`), 0o600); err != nil {
		t.Fatal(err)
	}
	if calls, err = Read(dir, "ns", "c"); err == nil || !strings.Contains(err.Error(), "late.jsonl:1: ") ||
		len(calls) != 1 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

// A pod that cannot be attached has a sandbox for each attempt. The log keeps the pod's last sandboxes, and the calls
// of other pods that use the claim.
func TestCallLogOfAPodThatKeepsFailing(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	claim := cnichain.Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	begin := time.Now().Add(-10 * time.Hour)
	record := func(pod, sandbox string, start time.Time) {
		t.Helper()
		log.Record(executor.Call{Time: start, Claim: claim, Pod: pod, SandboxID: sandbox, Command: "ADD"})
		if err := os.Chtimes(filepath.Join(log.Dir(claim), sandbox+".jsonl"), start, start); err != nil {
			t.Fatal(err)
		}
	}
	sandboxes := func() []string {
		t.Helper()
		calls, err := Read(dir, "ns", "c")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, call := range calls {
			names = append(names, call.Sandbox)
		}
		return names
	}
	record("ns/good", "good", begin)
	const attempts = 3 * maxSandboxes
	for i := range attempts {
		record("ns/bad", fmt.Sprintf("bad%02d", i), begin.Add(time.Duration(i+1)*time.Minute))
	}
	have := sandboxes()
	if len(have) != maxSandboxes+1 || have[0] != "good" ||
		have[1] != fmt.Sprintf("bad%02d", attempts-maxSandboxes) {
		t.Errorf("after %d attempts the log has %q", attempts, have)
	}
	// For a claim that stays prepared, calls older than the retention are removed, except the last of each pod.
	keep := func(string) bool { return true }
	if err := log.Sweep(begin.Add((attempts-2)*time.Minute), keep); err != nil {
		t.Fatal(err)
	}
	last := []string{"good", fmt.Sprintf("bad%02d", attempts-3), fmt.Sprintf("bad%02d", attempts-2),
		fmt.Sprintf("bad%02d", attempts-1)}
	if diff := cmp.Diff(last, sandboxes()); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
	if err := log.Sweep(time.Now(), keep); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good", last[3]}, sandboxes()); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
}

// Kubernetes allows longer names than the file system. A claim with such a name is nevertheless found by its name.
func TestCallLogOfLongNames(t *testing.T) {
	dir := t.TempDir()
	log := New(dir, func(err error) { t.Error(err) })
	namespace, uid := strings.Repeat("n", 63), "11111111-1111-1111-1111-111111111111"
	names := []string{strings.Repeat("c", 252) + "1", strings.Repeat("c", 252) + "2", "short"}
	for _, name := range names {
		log.Record(executor.Call{Claim: cnichain.Claim{Namespace: namespace, Name: name, UID: uid}, SandboxID: "sb",
			Pod: "ns/p", Command: "ADD"})
	}
	want := []string{namespace + "/" + names[0], namespace + "/" + names[1], namespace + "/short"}
	if claims, err := Claims(dir); err != nil || !cmp.Equal(claims, want) {
		t.Errorf("claims are %q, %v", claims, err)
	}
	for _, name := range names {
		calls, err := Read(dir, namespace, name)
		if err != nil || len(calls) != 1 || calls[0].Claim != namespace+"/"+name || calls[0].ClaimUID != uid {
			t.Errorf("calls of %s are %+v, %v", name, calls, err)
		}
	}
	var asked []string
	if err := log.Sweep(time.Now().Add(time.Hour),
		func(uid string) bool { asked = append(asked, uid); return false }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || !cmp.Equal(asked, []string{uid, uid, uid}) {
		t.Errorf("remaining directories are %v, %v; keep was called with %q", left, err, asked)
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
			t.Fatalf("call %d belongs to step %s", i, step)
		}
	}
}

// A few calls with large output wait like many calls with small output.
func TestBackgroundIsBounded(t *testing.T) {
	huge := executor.Call{Output: executor.CallOutput{Stdout: make([]byte, maxWaitingBytes)}, Stdin: []byte("{}")}
	small := executor.Call{Stdin: []byte("{}")}
	for _, test := range []struct {
		waiting, bytes int
		next           *executor.Call
		full           bool
	}{
		{0, 0, &huge, false}, {1, 2, &huge, true}, {1, maxWaitingBytes + 2, &small, true},
		{1, maxWaitingBytes - 2, &small, false}, {maxWaiting - 1, 0, &small, false}, {maxWaiting, 0, &small, true},
	} {
		background := Background{waiting: make([]executor.Call, test.waiting), bytes: test.bytes}
		if got := background.isFull(test.next); got != test.full {
			t.Errorf("%d waiting calls with %d bytes: full is %v, want %v", test.waiting, test.bytes, got, test.full)
		}
	}
	background := NewBackground(&slowRecorder{let: closedChannel()})
	for range 5 {
		background.Record(huge)
	}
	background.Flush()
	if background.bytes != 0 {
		t.Errorf("%d bytes are waiting", background.bytes)
	}
}

func closedChannel() chan struct{} {
	channel := make(chan struct{})
	close(channel)
	return channel
}

// All calls of several concurrent chains are passed on, and the calls of each chain stay in order.
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
