package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What these pages say is held by tests whose names they give: each is there.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	eachGoFile(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") {
			for _, match := range declaration.FindAllSubmatch(text, -1) {
				declared[string(match[1])] = true
			}
		}
	})
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range missingTests(string(text), declared) {
			t.Errorf("%s names %s, and no package has a test of that name", page, name)
		}
		named += len(testName.FindAllString(string(text), -1))
	}
	if named < 20 {
		t.Errorf("only %d tests are named: the pattern does not find them", named)
	}
}

// testName is a test, or a benchmark, in code of a page.
var testName = regexp.MustCompile("`(?:Test|Benchmark)[A-Z]\\w*`")

func missingTests(page string, declared map[string]bool) (missing []string) {
	for _, name := range testName.FindAllString(page, -1) {
		if name = strings.Trim(name, "`"); !declared[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestMissingTestsAreFound(t *testing.T) {
	have := missingTests("see `TestA`, `BenchmarkB` and `TestC`", map[string]bool{"TestA": true})
	if want := []string{"BenchmarkB", "TestC"}; !slices.Equal(have, want) {
		t.Errorf("missing are %q, want %q", have, want)
	}
}
