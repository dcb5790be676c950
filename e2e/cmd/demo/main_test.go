package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file, and whoever asks for none by NO_COLOR, gets no colours.
func TestColours(t *testing.T) {
	for _, colours := range []bool{false, true} {
		var out strings.Builder
		d := &demo{out: &out, colours: colours}
		d.title("A %s", "title")
		d.printf("%s", d.colour(dim, "a path"))
		if strings.Contains(out.String(), "\033[") != colours || !strings.Contains(out.String(), "── A title") {
			t.Errorf("with colours %v: %q", colours, out.String())
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // nothing is written
	if isTerminal(file) {
		t.Error("a file is taken for a terminal")
	}
}
