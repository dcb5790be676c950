package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Output without colors does not contain escape sequences.
func TestColours(t *testing.T) {
	for _, colours := range []bool{false, true} {
		var out strings.Builder
		d := &demo{out: &out, colours: colours}
		d.title("A %s", "title")
		d.printf("%s", d.colour(dim, "a path"))
		if strings.Contains(out.String(), "\033[") != colours || !strings.Contains(out.String(), "── A title") {
			t.Errorf("with colours = %v, the output is %q", colours, out.String())
		}
	}
}

// Colors are used only on terminals that support them, unless the user has disabled them.
func TestWhoGetsColours(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()                     // nothing is written
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // the master side of a pseudo-terminal is also a terminal
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }() // nothing is written
	for _, c := range []struct {
		name        string
		file        *os.File
		environment map[string]string
		want        bool
	}{
		{"terminal", terminal, map[string]string{"TERM": "xterm"}, true},
		{"NO_COLOR empty", terminal, map[string]string{"TERM": "xterm", "NO_COLOR": ""}, true},
		{"NO_COLOR", terminal, map[string]string{"TERM": "xterm", "NO_COLOR": "0"}, false},
		{"dumb terminal", terminal, map[string]string{"TERM": "dumb"}, false},
		{"file", file, map[string]string{"TERM": "xterm"}, false},
	} {
		if have := wantsColours(c.file, func(name string) string { return c.environment[name] }); have != c.want {
			t.Errorf("%s: colours are %v, want %v", c.name, have, c.want)
		}
	}
}
