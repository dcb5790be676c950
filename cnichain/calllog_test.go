package cnichain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
