package main

import (
	"os/exec"
	"slices"
	"testing"
)

// Commands inside the cluster find programs in the directory that contains lab, but the cluster's own programs take
// precedence.
func TestProgramsBesideLabAreFound(t *testing.T) {
	for want, env := range map[string][]string{
		"PATH=/cluster:/bin:/built": {"PATH=/home", "A=b", "PATH=/cluster:/bin"},
		"PATH=/built":               {"A=b"},
	} {
		cmd := exec.Command("true")
		cmd.Env = besidePath(slices.Clone(env), "/built")
		if have := cmd.Environ(); !slices.Contains(have, want) || slices.Contains(have, "PATH=/home") {
			t.Errorf("with environment %q, the command got %q, want %q", env, have, want)
		}
	}
}
