package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// loggedClaim writes the log of a claim whose second step failed in its first sandbox. It returns the log directory.
func loggedClaim(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	log := calllog.New(dir, func(err error) { t.Error(err) })
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	record := func(sandbox string, after, took time.Duration, command, step, plugin, stdout string, err error) {
		log.Record(executor.Call{Time: start.Add(after), Duration: took,
			Claim: cnichain.Claim{Namespace: "default", Name: "p-net", UID: "u"}, SandboxID: sandbox, Pod: "default/p",
			Command: command, Step: step, Plugin: "/opt/cni/bin/" +
				plugin, Stdin: json.RawMessage(`{"mtu":1400}`), Output: executor.CallOutput{Stdout: []byte(stdout)},
			Err: err})
	}
	const made = `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/x"},{"name":"veth7"}],` +
		`"ips":[{"address":"10.1.0.5/24"}]}`
	record("first-sandbox-of-the-pod", 0, 13*time.Millisecond, "ADD", "uplink", "macvlan", made, nil)
	record("first-sandbox-of-the-pod", 15*time.Millisecond, 4*time.Millisecond, "ADD", "tune", "tuning", "",
		errors.New("no such knob"))
	record("first-sandbox-of-the-pod", 20*time.Millisecond, 2*time.Millisecond, "DEL", "uplink", "macvlan", "", nil)
	record("second", 11*time.Second, 12*time.Millisecond, "ADD", "uplink", "macvlan", made, nil)
	return dir
}

func TestTraceGolden(t *testing.T) {
	dir := loggedClaim(t)
	var all strings.Builder
	for _, arguments := range [][]string{{}, {"default/p-net"}, {"p-net", "--calls"}} {
		code, stdout, stderr := runNetdra(t, "", append([]string{"trace", "--log-dir", dir}, arguments...)...)
		if want := min(len(arguments), exit.Failed); code != want {
			t.Errorf("%v: exit status %d, want %d because a call has failed:\n%s", arguments, code, want, stderr)
		}
		all.WriteString(strings.Join(append([]string{"$ netdra trace"}, arguments...), " ") + "\n" + stdout + "\n")
	}
	golden(t, filepath.Join("testdata", "trace.txt"), all.String())
}

func TestTraceOfNothing(t *testing.T) {
	dir := loggedClaim(t)
	if code, stdout, _ := runNetdra(t, "", "trace", "--log-dir", dir); code != exit.OK ||
		!strings.Contains(stdout, "\ndefault/p-net  default/p  4") {
		t.Errorf("exit status %d:\n%s", code, stdout)
	}
	if code, _, stderr := runNetdra(t, "", "trace", "--log-dir", dir, "other/p-net"); code != exit.Refused ||
		!strings.Contains(stderr, "check that this is the pod's node") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if code, stdout, _ := runNetdra(t, "", "trace", "--log-dir", t.TempDir()); code != exit.OK ||
		!strings.Contains(stdout, "has no claim") {
		t.Errorf("exit status %d:\n%s", code, stdout)
	}
	code, stdout, _ := runNetdra(t, "", "trace", "--log-dir", dir, "p-net", "-o", "json")
	var calls []calllog.Call
	if err := json.Unmarshal([]byte(stdout), &calls); err != nil || len(calls) != 4 ||
		calls[1].Error != "no such knob" || code != exit.Failed {
		t.Errorf("exit status %d, %v:\n%s", code, err, stdout)
	}
}

// --failed omits claims without failed calls.
func TestTraceListsFailedClaims(t *testing.T) {
	dir := loggedClaim(t)
	log := calllog.New(dir, func(err error) { t.Error(err) })
	log.Record(executor.Call{Time: time.Now(), Claim: cnichain.Claim{Namespace: "default", Name: "good", UID: "g"},
		SandboxID: "s", Pod: "default/g", Command: "ADD", Step: "uplink", Plugin: "/opt/cni/bin/macvlan"})
	const good, bad = "default/good", "default/p-net"
	for arguments, want := range map[string][]string{"": {good, bad}, "--failed": {bad}} {
		code, stdout, stderr := runNetdra(t, "", append([]string{"trace", "--log-dir", dir},
			strings.Fields(arguments)...)...)
		var listed []string
		for line := range strings.Lines(stdout) {
			listed = append(listed, strings.Fields(line)[0])
		}
		if code != exit.OK || !slices.Equal(listed, append([]string{"CLAIM"}, want...)) {
			t.Errorf("trace %s: exit status %d, want claims %v: %s%s", arguments, code, want, stdout, stderr)
		}
	}
	_, names, _ := runNetdra(t, "", "trace", "--failed", "--log-dir", dir, "-o", "json")
	if !strings.Contains(names, `"`+bad+`"`) || strings.Contains(names, good) {
		t.Errorf("--failed -o json: want only the claim whose call failed, got %s", names)
	}
	failed, err := filepath.Glob(filepath.Join(dir, "default_p-net_*"))
	if err != nil || len(failed) != 1 || os.RemoveAll(failed[0]) != nil {
		t.Fatalf("cannot remove %v (%v)", failed, err)
	}
	if _, names, _ := runNetdra(t, "", "trace", "--failed", "--log-dir", dir, "-o", "json"); names != "[]\n" {
		t.Errorf("--failed -o json without failed calls: got %s, want []", names)
	}
	code, stdout, stderr := runNetdra(t, "", "trace", "good", "--failed", "--log-dir", dir)
	if code != exit.OK || stdout != "no failed calls; 1 call in total\n" {
		t.Errorf("--failed on a claim whose calls succeeded: exit status %d: %s%s", code, stdout, stderr)
	}
}

// No plugin is called for a claim that was refused at Prepare. The error states this, even on the pod's node.
func TestTraceOfRefusedClaim(t *testing.T) {
	code, _, stderr := runNetdra(t, "", "trace", "--log-dir", loggedClaim(t), "--socket", busyDriver(t), "ns/twice")
	const want = "no plugin was called for claim ns/twice, since the driver refused to prepare it: cannot prepare " +
		"claim ns/twice: device eth1 is held by claim ns/whole; list the waiting pods with \"netdra claims ns/twice\""
	if code != exit.Refused || !strings.Contains(stderr, want) || strings.Contains(stderr, "the pod's node?") {
		t.Errorf("exit status %d, want %q: %s", code, want, stderr)
	}
}
