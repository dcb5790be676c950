package main

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// The help lists the commands by group.
func TestGroupsOfCommands(t *testing.T) {
	_, help, _ := runNetdra(t, "", "--help")
	for _, text := range []string{"Devices and policies:\n  explain", "Topologies:\n  chain",
		"This node and its driver:\n  bundle"} {
		if !strings.Contains(help, text) {
			t.Errorf("help lacks %q:\n%s", text, help)
		}
	}
}

// A Short is an imperative phrase that fits in the list of commands.
func TestShortsAreShort(t *testing.T) {
	for _, cmd := range rootCommand(osdeps.Deps{}, printer.Streams{}).Commands() {
		if words := strings.Fields(cmd.Short); len(words) > 8 {
			t.Errorf("%s: Short has %d words, want at most 8: %s", cmd.Name(), len(words), cmd.Short)
		}
	}
}
