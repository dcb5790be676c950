package printer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Colors are used only on terminals that support them, and never if NO_COLOR is set (https://no-color.org).
func TestColoursOnTerminals(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // nothing is written
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }() // nothing is written
	for _, c := range []struct {
		name, term, noColor string
		file                *os.File
		want                bool
	}{
		{name: "terminal", term: "xterm", file: terminal, want: true},
		{name: "NO_COLOR", term: "xterm", noColor: "1", file: terminal},
		{name: "dumb terminal", term: "dumb", file: terminal},
		{name: "file", term: "xterm", file: file},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		if have := New(c.file).Colours; have != c.want {
			t.Errorf("%s: colors enabled: %v, want %v", c.name, have, c.want)
		}
	}
	if p := New(&bytes.Buffer{}); p.Colours {
		t.Error("a buffer is treated as a terminal")
	}
}
