package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
)

// bondedTopology has two layers: one step that depends on two others.
const bondedTopology = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: bonded}
spec:
  steps:
  - {name: left, type: sriov, selector: {cel: "true"}}
  - {name: right, type: sriov, selector: {cel: "true"}}
  - {name: bond, type: bond, dependOn: [left, right], config: {mode: active-backup, miimon: "100", links: [{name: "{{ left.interfaceName }}"}, {name: "{{ right.interfaceName }}"}], linksInContainer: true}}
  - {name: data, type: vlan, dependOn: [bond], ifName: data0, config: {vlanId: 7, master: "{{ bond.interfaceName }}", linkInContainer: true}}
`

func TestGraphGolden(t *testing.T) {
	for _, format := range picture.Formats() {
		code, stdout, stderr := runNetdra(t, bondedTopology, "chain", "graph", "-", "-o", format)
		if code != exit.OK {
			t.Fatalf("%s: exit status %d:\n%s", format, code, stderr)
		}
		golden(t, filepath.Join("testdata", "graph", "bonded."+format), stdout)
	}
}

func TestGraphRefuses(t *testing.T) {
	for want, arguments := range map[string][]string{
		"use text, dot or mermaid": {"-o", "svg"},
		"did you mean":             nil,
	} {
		wrong := strings.Replace(bondedTopology, "vlanId", "vlanID", 1)
		if code, stdout, stderr := runNetdra(t, wrong,
			append([]string{"chain", "graph", "-"}, arguments...)...); code != exit.Refused ||
			!strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%v: exit status %d, want %q:\n%s%s", arguments, code, want, stdout, stderr)
		}
	}
}

// For a file with several topologies, the table contains all of them, or the selected one.
func TestGraphOfSeveral(t *testing.T) {
	f := newFake(t)
	file := f.write("t.yaml", linkThenTune+"---\n"+strings.Replace(linkThenTune, "name: moved", "name: again", 1))
	for line, want := range map[string][]string{
		"":             {"topology moved\nSTEP", "\n\ntopology again\nSTEP"},
		"--name again": {"STEP"},
	} {
		code, stdout, stderr := f.run(t.Context(), append([]string{"graph", file}, strings.Fields(line)...)...)
		for _, text := range want {
			headed := strings.Contains(stdout, "topology ")
			if code != exit.OK || !strings.Contains(stdout, text) || headed != (line == "") {
				t.Errorf("graph %s: exit status %d, want %q:\n%s%s", line, code, text, stdout, stderr)
			}
		}
	}
	for _, line := range []string{"graph " + file + " -o dot", "plan " + file + " -d up0"} {
		if code, _, stderr := f.run(t.Context(), strings.Fields(line)...); code != exit.Refused ||
			!strings.Contains(stderr, "choose one with --name: moved, again") {
			t.Errorf("%s: exit status %d: %s", line, code, stderr)
		}
	}
}
