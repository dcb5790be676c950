package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// The script prints the command's output. If installing the driver and the controller fails, the script prints the
// reason, and the command does not run.
func TestInstallScript(t *testing.T) {
	for name, test := range map[string]struct {
		kubectl, output string
		status          int
		calls           int
	}{
		"works": {"exit 0", "hello world\n", 7, 5},
		"fails": {`echo noise; test "$1" != wait`, "noise\nnoise\n", 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			if err := os.WriteFile(filepath.Join(dir, "kubectl"),
				[]byte("#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+calls+"\n"+test.kubectl), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("bash", "-c", installScript(), "install", filepath.Join(dir, "log $x"), "sh", "-c",
				`echo "$0 $1"; exit 7`, "hello", "world")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			output, _ := cmd.CombinedOutput() // the test checks the exit status
			if status := cmd.ProcessState.ExitCode(); status != test.status || string(output) != test.output {
				t.Errorf("exit status %d with output %q, want %d with %q", status, output, test.status, test.output)
			}
			lines, err := os.ReadFile(calls)
			if count := strings.Count(string(lines), "\n"); err != nil || count != test.calls {
				t.Errorf("kubectl was called %d times, want %d: %v\n%s", count, test.calls, err, lines)
			}
		})
	}
}

func TestClusterFlag(t *testing.T) {
	for flag, want := range map[string]clusterPlace{"": "", "--cluster": clusterOutside,
		"--cluster=outside": clusterOutside, "--cluster=inside": clusterInside} {
		cmd := vmCommand(&where{})
		if err := cmd.ParseFlags(strings.Fields(flag)); err != nil {
			t.Errorf("%s: %v", flag, err)
		} else if have := cmd.PersistentFlags().Lookup("cluster").Value.String(); have != string(want) {
			t.Errorf("%q was parsed as %q, want %q", flag, have, want)
		}
	}
	if err := vmCommand(&where{}).ParseFlags([]string{"--cluster=elsewhere"}); err == nil ||
		!strings.Contains(err.Error(), "outside or inside") {
		t.Errorf("error for an unknown place = %v, want one that lists the places", err)
	}
}

// On a machine that is a cluster node, plugins in EXTRA_CNI_DIR replace test doubles.
func TestRealPluginsReplaceDoubles(t *testing.T) {
	extra := t.TempDir()
	if err := os.WriteFile(filepath.Join(extra, "bond"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{stack.Driver, stack.Controller, stack.Plugins, stack.CommandLine} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := &vmFlags{where: &where{name: "x"}, bin: bin}
	for variable, want := range map[string][]string{"": {"doubles"}, extra: {filepath.Base(extra), "doubles"}} {
		t.Setenv("EXTRA_CNI_DIR", variable)
		options, err := flags.clusterOptions(t.TempDir(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, dir := range options.ExtraCNIDirs {
			have = append(have, filepath.Base(dir))
		}
		if !slices.Equal(have, want) {
			t.Errorf("EXTRA_CNI_DIR=%s: the node's plugins are in %q, want %q", variable, have, want)
		}
	}
	if text := doublesUsed(nil); !strings.HasPrefix(text, "sriov, bond, ovn-k8s-cni-overlay: test doubles") {
		t.Errorf("without real plugins the output is %q", text)
	}
	if text := doublesUsed([]string{extra}); !strings.HasPrefix(text, "sriov, ovn-k8s-cni-overlay: test doubles") {
		t.Errorf("with a real plugin the output is %q", text)
	}
}
