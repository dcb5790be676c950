// Package docs tests whether the documents' statements about the code are true.
package docs

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dra-networking/dra-network-driver"

// rule is a row in the table in docs/dev/packages.md.
type rule struct {
	forTests   bool // only tests may import the package
	production []string
	tests      []string // in addition to those for production code
}

// packageTable reads docs/dev/packages.md.
func packageTable(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile("dev/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]rule{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		table[quoted(cells[0])[0]] = rule{
			forTests:   strings.HasPrefix(strings.TrimSpace(cells[1]), "for tests:"),
			production: quoted(cells[2]),
			tests:      quoted(cells[3]),
		}
	}
	if len(table) < 10 {
		t.Fatalf("read only %d packages from dev/packages.md, want at least 10", len(table))
	}
	return table
}

// quoted returns the words in backticks.
func quoted(text string) (words []string) {
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, match[1])
	}
	return words
}

// packageOf returns the innermost listed package that contains a directory, or "" if there is none.
func packageOf(table map[string]rule, dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := table[dir]; ok {
			return dir
		}
	}
	return ""
}

func TestImportsFollowTheTable(t *testing.T) {
	table := packageTable(t)
	files := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		files++
		imports, err := importsOf(path)
		if err != nil {
			return err
		}
		for _, problem := range importProblems(table, strings.TrimPrefix(path, "../"), imports) {
			t.Error(problem)
		}
		return nil
	})
	if err != nil || files < 50 {
		t.Fatalf("checked only %d files, error: %v", files, err)
	}
}

// importsOf returns this project's directories that a file imports.
func importsOf(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if ours, isOurs := strings.CutPrefix(imported, module+"/"); isOurs {
			imports = append(imports, ours)
		}
	}
	return imports, nil
}

// importProblems returns a file's imports that the table forbids.
func importProblems(table map[string]rule, file string, imports []string) (problems []string) {
	name := packageOf(table, filepath.Dir(file))
	if name == "" {
		return []string{fmt.Sprintf("%s belongs to no package of dev/packages.md", file)}
	}
	allowed := table[name].production
	isTest := strings.HasSuffix(file, "_test.go") || table[name].forTests
	if isTest {
		allowed = slices.Concat(allowed, table[name].tests)
	}
	for _, imported := range imports {
		target := packageOf(table, imported)
		if target == name {
			continue
		}
		switch {
		case !slices.Contains(allowed, imported):
			problems = append(problems, fmt.Sprintf("%s imports %s: it may import only %v", file, imported, allowed))
		case table[target].forTests && !isTest:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is for tests only", file, imported))
		}
	}
	return problems
}

// importProblems finds forbidden imports.
func TestImportProblems(t *testing.T) {
	table := map[string]rule{
		"plugin":       {production: []string{"discovery", "faketest"}, tests: []string{"recordings"}},
		"discovery":    {},
		"faketest":     {forTests: true, production: []string{"discovery"}, tests: []string{"plugin"}},
		"recordings":   {forTests: true},
		"plugin/inner": {},
	}
	for _, test := range []struct{ file, imported, want string }{
		{"plugin/a.go", "discovery", ""},
		{"plugin/a.go", "plugin/own", ""},
		{"plugin/a.go", "recordings", "may import only"},
		{"plugin/a_test.go", "recordings", ""},
		{"plugin/a.go", "faketest", "for tests only"}, // although the row allows it
		{"plugin/a_test.go", "faketest", ""},
		{"plugin/inner/a.go", "discovery", "may import only"},
		{"plugin/a.go", "plugin/inner", "may import only"},
		{"discovery/a.go", "plugin", "may import only"},
		{"faketest/a.go", "plugin", ""},
		{"elsewhere/a.go", "plugin", "belongs to no package"},
	} {
		problems := importProblems(table, test.file, []string{test.imported})
		if test.want == "" && problems != nil || test.want != "" &&
			(len(problems) != 1 || !strings.Contains(problems[0], test.want)) {
			t.Errorf("%s imports %s: got problems %q, want %q", test.file, test.imported, problems, test.want)
		}
	}
}

// The libraries that this project must build on are direct requirements in go.mod.
func TestDirectRequirements(t *testing.T) {
	data, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(data), -1) {
		direct[match[1]] = true // not followed by "// indirect"
	}
	for _, path := range []string{
		"github.com/containerd/nri", "github.com/containernetworking/cni", "github.com/containernetworking/plugins",
		"k8s.io/dynamic-resource-allocation", "github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		"github.com/google/cel-go",
	} {
		if !direct[path] {
			t.Errorf("go.mod does not require %s directly", path)
		}
	}
}

// Every directory that contains Go code has a package comment that states the package's rule.
func TestEveryPackageHasADoc(t *testing.T) {
	for name := range packageTable(t) {
		if name == "docs" || strings.HasPrefix(name, "cmd/") || name == "deploy" || name == "e2e" {
			continue
		}
		documented := false
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil && strings.Contains(file.Doc.Text(), "Invariant:")
		}
		if !documented {
			t.Errorf("no file of %s has a package comment with \"Invariant:\"", name)
		}
	}
}
