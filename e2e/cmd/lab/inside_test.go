package main

import (
	"os/exec"
	"slices"
	"testing"
)

// A command inside finds what was built beside lab, after all that the cluster has itself.
func TestProgramsBesideLabAreFound(t *testing.T) {
	for want, env := range map[string][]string{
		"PATH=/cluster:/bin:/built": {"PATH=/home", "A=b", "PATH=/cluster:/bin"},
		"PATH=/built":               {"A=b"},
	} {
		cmd := exec.Command("true")
		cmd.Env = besidePath(slices.Clone(env), "/built")
		if have := cmd.Environ(); !slices.Contains(have, want) || slices.Contains(have, "PATH=/home") {
			t.Errorf("of %q the command has %q, want %q", env, have, want)
		}
	}
}
