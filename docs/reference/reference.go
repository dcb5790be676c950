// Package reference contains the reference pages, which are generated from the code by tests.
//
// Invariant: pages are generated. A test next to the code that a page describes compares the page with
// the generated text; in `make generate`, the test writes the page instead.
package reference

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// updating is the environment variable that makes tests write the pages instead of comparing them.
const updating = "UPDATE_REFERENCE"

// Command compares the page for a command and its subcommands with the output of --help.
func Command(t *testing.T, root *cobra.Command) {
	t.Helper()
	root.DisableAutoGenTag = true
	var text bytes.Buffer
	text.WriteString("# " + root.Name() + "\n\n`make generate` creates this page from the output of `--help`.\n\n")
	var commands bytes.Buffer
	describe(t, &commands, root)
	if contents := Contents(commands.String()); strings.Count(contents, "\n") > 10 {
		text.WriteString(contents + "\n")
	}
	text.Write(commands.Bytes())
	Page(t, root.Name()+".md", text.Bytes())
}

// Contents returns a document's table of contents: links to its second-level headings.
func Contents(document string) string {
	var list strings.Builder
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(document, -1) {
		fmt.Fprintf(&list, "- [%s](#%s)\n", heading[1], Anchor(heading[1]))
	}
	return list.String()
}

// Anchor returns the link anchor that GitHub generates for a heading.
func Anchor(heading string) string {
	name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(name, " ", "-")
}

// Page compares a page with its generated text, or writes the page if UPDATE_REFERENCE is set.
func Page(t *testing.T, name string, text []byte) {
	t.Helper()
	text = literal(text)
	path := filepath.Join(module(t), "docs", "reference", name)
	if os.Getenv(updating) != "" {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(written), string(text)); diff != "" {
		t.Errorf("docs/reference/%s is out of date, run `make generate` (-got +want):\n%s", name, diff)
	}
}

// literal escapes "<name>" in prose, since Markdown would drop it as an HTML element. Code is not changed.
func literal(text []byte) []byte {
	element := regexp.MustCompile(`<[a-zA-Z/]`)
	var out bytes.Buffer
	fenced := false
	for line := range bytes.Lines(text) {
		fenced = fenced != bytes.HasPrefix(line, []byte("```"))
		if !fenced && !bytes.HasPrefix(line, []byte("    ")) {
			parts := bytes.Split(line, []byte("`")) // parts with an odd index are code
			for i := 0; i < len(parts); i += 2 {
				parts[i] = element.ReplaceAll(parts[i], []byte(`\$0`))
			}
			line = bytes.Join(parts, []byte("`"))
		}
		out.Write(line)
	}
	return out.Bytes()
}

// module returns the Go module's root directory. Every test runs in or below this directory.
func module(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test runs outside the module")
		}
		dir = filepath.Dir(dir)
	}
}

// describe writes the reference for a command and its subcommands.
func describe(t *testing.T, text *bytes.Buffer, command *cobra.Command) {
	t.Helper()
	var page bytes.Buffer
	if err := doc.GenMarkdownCustom(command, &page, func(name string) string { return name }); err != nil {
		t.Fatal(err)
	}
	related := regexp.MustCompile("(?s)### SEE ALSO.*") // the page itself contains all related commands
	text.WriteString(strings.TrimSpace(related.ReplaceAllString(page.String(), "")) + "\n\n")
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			describe(t, text, sub)
		}
	}
}
