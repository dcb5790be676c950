package main

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Commands still work under their former names, which the help does not show.
func TestFormerNamesOfCommands(t *testing.T) {
	dir := loggedClaim(t)
	socket, posts := garbageDriver(t, nodestate.Orphan{Kind: "CDI spec", Path: "/var/run/cdi/dra.networking-u.json"})
	for former, present := range map[string]string{
		"logs p-net --log-dir " + dir:             "trace p-net --full --log-dir " + dir,
		"logs p-net --failed --log-dir " + dir:    "trace p-net --full --failed --log-dir " + dir,
		"logs p-net -o json --log-dir " + dir:     "trace p-net -o json --log-dir " + dir,
		"gc --socket " + socket:                   "release --orphans --socket " + socket,
		"gc --all -o wide --socket " + socket:     "release --orphans --all -o wide --socket " + socket,
		"gc --dry-run -o json --socket " + socket: "release --orphans -o json --socket " + socket,
	} {
		code, stdout, stderr := runNetdra(t, "", strings.Fields(former)...)
		wantCode, wantOut, wantErr := runNetdra(t, "", strings.Fields(present)...)
		if code != wantCode || stdout != wantOut || stderr != wantErr {
			t.Errorf("netdra %s: exit status %d\n%s%s\nwant what netdra %s does: %d\n%s%s", former, code, stdout,
				stderr, present, wantCode, wantOut, wantErr)
		}
	}
	if *posts != 2 {
		t.Errorf("orphans were removed %d times", *posts)
	}
	if code, _, stderr := runNetdra(t, "", "release", "--orphans", "key", "--socket", socket); code != exit.Refused ||
		!strings.Contains(stderr, "takes no KEY") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	_, help, _ := runNetdra(t, "", "--help")
	for _, text := range []string{"Devices and policies:\n  classes", "Topologies:\n  chain",
		"This node and its driver:\n  bundle"} {
		if !strings.Contains(help, text) {
			t.Errorf("%q is not in\n%s", text, help)
		}
	}
	for _, former := range []string{"\n  logs", "\n  gc"} {
		if strings.Contains(help, former) {
			t.Errorf("the help shows %s", former)
		}
	}
}

// A Short is an imperative phrase, for a list of commands.
func TestShortsAreShort(t *testing.T) {
	for _, cmd := range rootCommand(osdeps.Deps{}, printer.Streams{}).Commands() {
		if words := strings.Fields(cmd.Short); len(words) > 8 {
			t.Errorf("%s: %d words: %s", cmd.Name(), len(words), cmd.Short)
		}
	}
}
