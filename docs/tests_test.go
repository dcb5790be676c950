package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// All tests mentioned in the documents exist.
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
			t.Errorf("%s mentions %s, but no package declares that test", page, name)
		}
		named += len(testName.FindAllString(string(text), -1))
	}
	if named < 20 {
		t.Errorf("found only %d test names: the pattern does not match", named)
	}
}

// testName matches the name of a test or benchmark that is marked as code on a page.
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
		t.Errorf("got missing tests %q, want %q", have, want)
	}
}

// TestMigrationsNameTheirTests checks that each row in migrate.md names a test or states that it is not tested.
func TestMigrationsNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, untested := untestedRows(string(text))
	for _, row := range untested {
		t.Errorf("the row %q neither names a test nor says that it is untested", row)
	}
	if rows < 10 {
		t.Errorf("only %d rows have a tests column: the pattern does not match", rows)
	}
}

// untestedRows reads the tables whose last column is headed "tested". It returns the number of rows, and the first
// column of each row that does not name a test.
func untestedRows(page string) (rows int, untested []string) {
	inTable := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case last == "tested":
			inTable = true
		case inTable && (last == "" || strings.Trim(last, "-") != ""): // not the separator below the headings
			rows++
			if !testName.MatchString(last) && !strings.HasPrefix(last, "not tested") {
				untested = append(untested, strings.TrimSpace(cells[0]))
			}
		}
	}
	return rows, untested
}

func TestUntestedRowsAreFound(t *testing.T) {
	const page = "| a | tested |\n|---|---|\n| b | in use |\n| c | `TestC` |\n| d | not tested: why |\n| e `TestE` | |\n" +
		"\n| a | b |\n|---|---|\n| f | g |\n"
	rows, untested := untestedRows(page)
	if want := []string{"b", "e `TestE`"}; rows != 4 || !slices.Equal(untested, want) {
		t.Errorf("got %d rows, untested %q, want 4 and %q", rows, untested, want)
	}
}
