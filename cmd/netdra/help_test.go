package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// If the executable has the name of a kubectl plugin, help texts use "kubectl netdra".
func TestKubectlPlugin(t *testing.T) {
	for called, want := range map[string]string{"/usr/bin/kubectl-netdra": "kubectl netdra", "./netdra": "netdra"} {
		var out, errs bytes.Buffer
		streams := printer.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Name: displayName(called)}
		if code := run(t.Context(), osdeps.Deps{}, streams, "devices", "--help"); code != exit.OK {
			t.Errorf("exit status %d", code)
		}
		for _, line := range []string{"\n  " + want + " devices [DEVICE]... [flags]\n", "\n  sudo netdra devices -o wide\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: help lacks %q:\n%s", called, line, out.String())
			}
		}
		if run(t.Context(), osdeps.Deps{}, streams, "nothing"); !strings.HasPrefix(errs.String(), want+
			": unknown command") {
			t.Errorf("%s: want an unknown command error, got %s", called, errs.String())
		}
	}
}

// Every command without subcommands describes its exit status in the same format.
func TestExitCodesAreDocumented(t *testing.T) {
	for _, cmd := range rootCommand(osdeps.Deps{}, printer.Streams{}).Commands() {
		if cmd.IsAdditionalHelpTopicCommand() || cmd.HasSubCommands() || cmd.Name() == "help" ||
			cmd.Name() == "version" {
			continue
		}
		if !strings.Contains(cmd.Long, "\n\nExit status: 0 ") {
			t.Errorf("%s does not describe its exit status:\n%s", cmd.Name(), cmd.Long)
		}
	}
}

// Errors name the missing or surplus argument and include an example. Requesting help for an unknown command is a usage
// error.
func TestArgumentsAreNamed(t *testing.T) {
	for line, want := range map[string]string{
		"facts eth0": `cannot use argument "eth0": netdra facts takes no arguments; to show one device, run ` +
			"netdra explain eth0",
		"doctor now": `cannot use argument "now": netdra doctor takes no arguments; see netdra doctor --help`,
		"simulate a.yaml": `cannot use argument "a.yaml": netdra simulate takes no arguments; pass files with ` +
			"-f a.yaml",
		"chain validate": "cannot run netdra chain validate: the argument TOPOLOGY is missing; " +
			"example: netdra chain validate topology.yaml",
		"explain":          "the argument DEVICE is missing; example: netdra explain eth0",
		"explain a b":      `cannot use argument "b": netdra explain takes one DEVICE; example: netdra explain`,
		"policies test":    "the argument FILE is missing; example: netdra policies test policies.yaml",
		"chain plan a b":   `cannot use argument "b": netdra chain plan takes one TOPOLOGY; example:`,
		"chain vaildate":   `unknown command "vaildate" for "netdra chain"; see netdra chain --help`,
		"help foo":         `unknown command "foo" for "netdra"; see netdra --help`,
		"help chain plna":  `unknown command "plna" for "netdra chain"; see netdra chain --help`,
		"help policies ls": `unknown command "ls" for "netdra policies"`,
	} {
		if code, stdout, stderr := runNetdra(t, "", strings.Fields(line)...); code != exit.Refused || stdout != "" ||
			!strings.Contains(stderr, want) {
			t.Errorf("netdra %s: exit status %d, want %q:\n%s%s", line, code, want, stdout, stderr)
		}
	}
	for line, want := range map[string]string{"help": "Usage:", "help chain plan": "netdra chain plan TOPOLOGY",
		"help exit-codes": "Every command uses the same exit statuses"} {
		if code, stdout, _ := runNetdra(t, "", strings.Fields(line)...); code != exit.OK ||
			!strings.Contains(stdout, want) {
			t.Errorf("netdra %s: exit status %d:\n%s", line, code, stdout)
		}
	}
}

// The -o flag has the same meaning, description and error message in every command.
func TestOutputIsDescribedAlike(t *testing.T) {
	var check func(cmd *cobra.Command)
	described, known := 0, regexp.MustCompile(`^((text|table|wide|json|yaml)(, | or |$))+$`)
	check = func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("output"); flag != nil && !flag.Hidden {
			described++
			_, forms, ok := strings.Cut(flag.Usage, "form of the result: ")
			if !ok || !known.MatchString(forms) {
				t.Errorf("%s: description of --output is %q, want a list of known forms", cmd.CommandPath(), flag.Usage)
			}
			if err := cmd.Flags().Set("output", "xml"); err == nil || !strings.Contains(err.Error(), "; use "+forms) {
				t.Errorf("%s: --output xml: error = %v, want one that lists the forms", cmd.CommandPath(), err)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(rootCommand(osdeps.Deps{}, printer.Streams{}))
	if described < 15 {
		t.Errorf("only %d commands have the --output flag, want at least 15", described)
	}
}
