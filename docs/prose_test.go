package docs

import (
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unidiomatic returns patterns for unidiomatic phrases, along with suggested replacements. Comments, messages and pages
// must not contain any of these phrases (STYLE.md, "Language").
func unidiomatic() [][2]string {
	return [][2]string{
		{`any more\b`, `"no longer", or delete it`},
		{`(anew|once more)\b`, `"again"`},
		{`(nobody|somebody|everybody)([ .,;]|$)`, `the component or person: the kubelet, another process, all users`},
		{`(is|are|was|were|comes?|came|goes|brought) home\b`, `"is back on the host", "returns"`},
		{`(gives?|given|gave|giving) (it |them |that )?back\b`, `"returns", "releases", "restores"`},
		{`takes? (it |them )?away\b`, `"removes"`},
		{`in place of\b`, `"instead of"`},
		{`(for whom|many a|own words)\b`, `a shorter sentence with the noun`},
		{`mend(s|ed|ing)?\b`, `"repairs", "fixes"`},
		{`cards?\b`, `"NIC"`},
		{`(tells?|told|asks?|asked|knows?|knew) (what|why|who|how)\b`, `"returns", "reports", "requests", "reads"`},
		{`(of|by|from|with|for|than|beside|in) what (is|was|are|were|it|they|the|a|an|has|have|can|does|comes)\b`,
			`the noun instead of a "what" clause`},
		{`of which (nobody|nothing|one|it|they|there)\b`, `a second sentence`},
		{`(stands?|stood) (on|beside|for|behind|around)\b`, `"is above", "is next to", "represents"`},
		{`(otherwise than|in the moment|by itself)\b`, `"unlike", "when", "on its own"`},
		{`(it|that|this|which) (is|was) no (address|device|error|name|plugin|problem|reason)\b`, `"is not a …"`},
	}
}

func phrase(patterns ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.Join(patterns, "|") + ")")
}

// TestProseIsIdiomatic checks all pages, and the comments and messages in the code.
func TestProseIsIdiomatic(t *testing.T) {
	var patterns []string
	for _, row := range unidiomatic() {
		patterns = append(patterns, row[0])
	}
	all := phrase(patterns...)
	check := func(path string, line int, text string) {
		if !all.MatchString(text) { // faster than trying one pattern after another
			return
		}
		for _, problem := range unidiomaticIn(text) {
			t.Errorf("%s:%d: %s", path, line, problem)
		}
	}
	eachGoFile(t, func(path string, text []byte) {
		if path == "docs/prose_test.go" {
			return // this file contains the patterns
		}
		for line, prose := range proseOf(t, path, text) {
			check(path, line, prose)
		}
	})
	// The table in STYLE.md contains bad examples.
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if path != "../STYLE.md" || !strings.HasPrefix(line, "|") {
				check(strings.TrimPrefix(path, "../"), i+1, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unidiomaticIn returns a message for each unidiomatic phrase in text.
func unidiomaticIn(text string) (problems []string) {
	for _, row := range unidiomatic() {
		if found := phrase(row[0]).FindString(text); found != "" {
			problems = append(problems, fmt.Sprintf("%q: write %s", found, row[1]))
		}
	}
	return problems
}

// proseOf returns a Go file's comments and its string literals with spaces, keyed by line.
func proseOf(t *testing.T, path string, text []byte) map[int]string {
	t.Helper()
	files, prose := token.NewFileSet(), map[int]string{}
	if _, err := parser.ParseFile(files, path, text, parser.PackageClauseOnly); err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	file := files.AddFile(path, files.Base(), len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		position, kind, literal := s.Scan()
		if kind == token.EOF {
			return prose
		}
		if kind == token.COMMENT || kind == token.STRING && strings.Contains(literal, " ") {
			prose[file.Line(position)] += literal + "\n"
		}
	}
}

// Every pattern matches its phrase, even at the start of a sentence. Words that merely contain a phrase are accepted.
func TestUnidiomaticPhrasesAreFound(t *testing.T) {
	for _, text := range []string{
		"It does not exist any more.", "Nobody has it.", "it is read once more", "the link comes home",
		"a driver gives it back", "vlan in place of bond", "it tells what a plugin did", "the name of what it makes",
		"links stand on others", "It is no error.",
	} {
		if len(unidiomaticIn(text)) != 1 {
			t.Errorf("%q: got problems %q, want one", text, unidiomaticIn(text))
		}
	}
	for _, text := range []string{
		"any moreover", "a wildcard", "recommended", "there is no address", "team: nobody}", "it asks the user",
	} {
		if problems := unidiomaticIn(text); len(problems) > 0 {
			t.Errorf("%q: got problems %q, want none", text, problems)
		}
	}
}
