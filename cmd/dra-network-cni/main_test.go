package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain acts as the dra-network-cni command if an environment variable is set.
func TestMain(m *testing.M) {
	if os.Getenv("DRA_NETWORK_CNI_TEST") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The binary's name selects the program, regardless of its directory. If the name does not match any program, the first
// argument selects the program.
func TestPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"netdev", "dra-network-cni", "other"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name      string
		arguments []string
		status    int
		says      string
	}{
		{"netdev", nil, 0, "CNI plugin netdev"},
		{"dra-network-cni", []string{"netdev"}, 0, "CNI plugin netdev"},
		{"other", []string{"netdev"}, 0, "CNI plugin netdev"},
		{"dra-network-cni", []string{"--version"}, 0, "dra-network-cni version "},
		{"dra-network-cni", nil, 2, `cannot run "dra-network-cni": unknown program`},
		{"dra-network-cni", []string{"sriov"}, 2, `cannot run "sriov": unknown program`},
	} {
		command := exec.CommandContext(t.Context(), filepath.Join(dir, test.name), test.arguments...)
		command.Env = append(os.Environ(), "DRA_NETWORK_CNI_TEST=1", "CNI_COMMAND=")
		output, err := command.CombinedOutput()
		status := 0
		if exit := (&exec.ExitError{}); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != test.status || !strings.Contains(string(output), test.says) {
			t.Errorf("%s %v: got exit status %d, output %q; want %d, %q", test.name, test.arguments, status, output,
				test.status, test.says)
		}
	}
}
