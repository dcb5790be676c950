package cnichain

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCallLog(t *testing.T) {
	dir := t.TempDir()
	log := NewCallLog(dir, func(err error) { t.Error(err) })
	claim := Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	call := Call{Time: time.Unix(1, 0), Claim: claim, SandboxID: "sb", Command: "ADD", Step: "link",
		Stdin:  json.RawMessage(`{"type":"x","auth":[{"Password":"hunter2"}],"psk":"hunter2"}`),
		Output: CallOutput{Stdout: []byte("not json hunter"), Stderr: []byte(strings.Repeat("e", 100000))}}
	log.Record(call)
	data, err := os.ReadFile(filepath.Join(dir, "ns_c_u-1", "sb.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(data); !contains(text, `"Password":"(redacted)"`, `"psk":"(redacted)"`, `"stdout":"not json hunter"`) || strings.Contains(text, "hunter2") || len(text) > 20000 {
		t.Errorf("logged %d bytes: %.300s", len(text), text)
	}
	call.Output.Stderr = nil
	call.Env = []string{strings.Repeat("x", maxLogFile/2)}
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
		t.Errorf("the log of a prepared claim is gone: %v", err)
	}
	if err := log.Sweep(future, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log.Dir(claim)); !os.IsNotExist(err) {
		t.Errorf("the log of a released claim is still there: %v", err)
	}
}

// What is written can be read, also around a line that a crash has cut off.
func TestCallLogIsRead(t *testing.T) {
	dir := t.TempDir()
	log := NewCallLog(dir, func(err error) { t.Error(err) })
	claim := Claim{Namespace: "ns", Name: "c", UID: "u-1"}
	log.Record(Call{Time: time.Unix(2, 0), Duration: 13*time.Millisecond + 200*time.Microsecond, Claim: claim, SandboxID: "late", Command: "DEL", Step: "link"})
	log.Record(Call{Time: time.Unix(1, 0), Claim: claim, SandboxID: "early", Pod: "ns/p", Command: "ADD", Plugin: "/opt/macvlan", Step: "link",
		Output: CallOutput{Stdout: []byte(`{"ips":[]}`)}, Err: errors.New("no")})
	log.Record(Call{Time: time.Unix(1, 0), Claim: Claim{Namespace: "ns", Name: "c-2", UID: "u-2"}, SandboxID: "x"})
	calls, err := ReadCalls(dir, "ns", "c")
	want := []LoggedCall{
		{Time: time.Unix(1, 0).UTC(), Claim: "ns/c", ClaimUID: "u-1", Pod: "ns/p", Sandbox: "early", Step: "link", Command: "ADD", Plugin: "/opt/macvlan", Stdin: json.RawMessage("null"), Stdout: json.RawMessage(`{"ips":[]}`), Error: "no"},
		{Time: time.Unix(2, 0).UTC(), Duration: Duration(13200 * time.Microsecond), Claim: "ns/c", ClaimUID: "u-1", Sandbox: "late", Step: "link", Command: "DEL", Stdin: json.RawMessage("null")},
	}
	if diff := cmp.Diff(want, calls); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if claims, err := LoggedClaims(dir); err != nil || strings.Join(claims, " ") != "ns/c ns/c-2" {
		t.Errorf("claims are %v, %v", claims, err)
	}
	file := filepath.Join(log.Dir(claim), "late.jsonl")
	if err := os.WriteFile(file, []byte(`{"time":"1970-01-01T00:00:03Z","durat`), 0o600); err != nil {
		t.Fatal(err)
	}
	if calls, err = ReadCalls(dir, "ns", "c"); err == nil || !strings.Contains(err.Error(), "late.jsonl:1: ") || len(calls) != 1 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}
