package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Under the name by which kubectl finds it the program says how it is called.
func TestKubectlPlugin(t *testing.T) {
	for called, want := range map[string]string{"/usr/bin/kubectl-netdra": "kubectl netdra", "./netdra": "netdra"} {
		var out, errs bytes.Buffer
		streams := printer.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Name: displayName(called)}
		if code := run(t.Context(), osdeps.Deps{}, streams, "devices", "--help"); code != exit.OK {
			t.Errorf("exit status %d", code)
		}
		for _, line := range []string{"\n  " + want + " devices [DEVICE]... [flags]\n", "\n  sudo " + want +
			" devices -o wide\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: %q is not in\n%s", called, line, out.String())
			}
		}
		if run(t.Context(), osdeps.Deps{}, streams, "nothing"); !strings.HasPrefix(errs.String(), want+
			": unknown command") {
			t.Errorf("%s: %s", called, errs.String())
		}
	}
}

// The table of exit statuses has every command but old names, and every command that says something of them says it in
// one form.
func TestExitCodesAreDocumented(t *testing.T) {
	_, stdout, _ := runNetdra(t, "", "help", "exit-codes")
	for _, cmd := range rootCommand(osdeps.Deps{}, printer.Streams{}).Commands() {
		if cmd.IsAdditionalHelpTopicCommand() || cmd.Hidden {
			continue
		}
		if !regexp.MustCompile(`(?m)^  [a-z, ]*\b` + cmd.Name() + `\b`).MatchString(stdout) {
			t.Errorf("%s is not in\n%s", cmd.Name(), stdout)
		}
	}
}
