package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// slow sets up a variant of macvlan whose ADD announces its start and then waits for permission to continue.
func (r *real) slow() (topology, schemas, started, proceed string) {
	r.t.Helper()
	started, proceed = filepath.Join(r.dir, "started"), filepath.Join(r.dir, "proceed")
	for _, fifo := range []string{started, proceed} {
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.write("slow", fmt.Sprintf(`#!/bin/sh
config=$(cat)
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0 ;;
ADD) echo begun > %s; read -r _ < %s ;;
esac
echo "$config" | %s/macvlan
`, started, proceed, r.cni), 0o700)
	schemas = r.write("schemas.yaml", "apiVersion: networking.dra.io/v1alpha1\nkind: CNIPluginSchema\nmetadata: "+
		"{name: slow}\n"+
		"spec: {cniType: slow, deviceParameters: [{parameter: master, attribute: ifName}]}\n", 0o600)
	topology = r.topology(`
  - {name: first, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local, subnet: 10.77.0.0/24}}}
  - {name: second, type: slow, selector: {cel: "true"}}
`)
	return topology, schemas, started, proceed
}

// start starts the command in a separate process.
func (r *real) start(arguments ...string) (*exec.Cmd, *bufio.Scanner) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "/proc/self/exe", append([]string{"chain"}, arguments...)...)
	cmd.Env = append(os.Environ(), processVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// startSlow starts a run and returns while the ADD for its second step is running.
func (r *real) startSlow() (cmd *exec.Cmd, out *bufio.Scanner, proceed string) {
	r.t.Helper()
	topology, schemas, started, proceed := r.slow()
	cmd, out = r.start("run", topology, "--schemas", schemas, "-d", "first=uplink0", "-d", "second=uplink0", "--shared",
		"first", "--shared", "second", "--cni-path", r.path())
	if begun, err := os.ReadFile(started); err != nil || string(begun) != "begun\n" {
		r.t.Fatalf("the slow plugin did not begin: got %q, error = %v", begun, err)
	}
	return cmd, out, proceed
}

// rest reads the remaining output.
func rest(out *bufio.Scanner) string {
	var text strings.Builder
	for out.Scan() {
		text.WriteString(out.Text() + "\n")
	}
	return text.String()
}

func TestRunKilledInTheMiddleIsUndone(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	killed, _, proceed := r.startSlow()
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	if code, _, errs := r.run(r.topology(macvlanThenTuning), "-d", "uplink0"); code != exit.Refused ||
		!strings.Contains(errs, "was interrupted while attaching") {
		t.Errorf("another run: exit status %d, want a refusal\n%s", code, errs)
	}
	undo, out := r.start("undo")
	for out.Scan() && !strings.Contains(out.Text(), "still running") { //nolint:revive // skips the output up to there
	}
	if err := os.WriteFile(proceed, []byte("go on\n"), 0o600); err != nil { // lets the killed run's ADD finish
		t.Fatal(err)
	}
	text := rest(out)
	if err := undo.Wait(); err != nil || !strings.Contains(text, "✓ DEL second (slow)") ||
		!strings.Contains(text, "✓ DEL first (macvlan)") {
		t.Errorf("undo after the kill: error = %v\n%s", err, text)
	}
	t.Log(text)
	r.expectAsBefore()
}

func TestRunThatIsAskedToEndUndoes(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	cmd, out, _ := r.startSlow()
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	text := rest(out)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exit.Failed ||
		!strings.Contains(text, "netdra: interrupted: step \"second\" (slow)") {
		t.Errorf("the command did not report the interruption: %v\n%s", err, text)
	}
	t.Log(text)
	r.expectAsBefore()
	if code, text := r.undo(); code != exit.OK || text != "✓ Nothing is left of earlier runs.\n" {
		t.Errorf("undo: exit status %d, want 0\n%s", code, text)
	}
}
