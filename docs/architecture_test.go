// Package docs tests that what the documents say of the code is true.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dra-networking/dra-network-driver"

// rooms reads the table of architecture.md: which of our packages each room may import.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([^`]+)`")
	table := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		allowed := []string{}
		for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
			allowed = append(allowed, match[1])
		}
		table[code.FindStringSubmatch(cells[0])[1]] = allowed
	}
	if len(table) < 10 {
		t.Fatalf("read only %d rooms from architecture.md", len(table))
	}
	return table
}

// roomOf returns the innermost room of a folder.
func roomOf(table map[string][]string, dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := table[dir]; ok {
			return dir
		}
	}
	return ""
}

func TestImportsFollowTheTable(t *testing.T) {
	table := rooms(t)
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
		checkFile(t, table, path)
		return nil
	})
	if err != nil || files < 50 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
}

func checkFile(t *testing.T, table map[string][]string, path string) {
	t.Helper()
	dir, err := filepath.Rel("..", filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	room := roomOf(table, dir)
	if room == "" {
		t.Errorf("%s is in no room of architecture.md", path)
		return
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		ours, isOurs := strings.CutPrefix(imported, module+"/")
		if !isOurs || allowed(table, room, ours) {
			continue
		}
		t.Errorf("%s imports %s: room %s may import only %v", path, ours, room, table[room])
	}
}

func allowed(table map[string][]string, room, imported string) bool {
	target := roomOf(table, imported)
	if target == room {
		return true
	}
	for _, other := range table[room] {
		if other == imported || other == target && imported == target {
			return true
		}
	}
	return false
}

// The libraries that the project is built on must be direct requirements.
func TestDirectRequirements(t *testing.T) {
	data, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(data), -1) {
		direct[match[1]] = true // without "// indirect" behind it
	}
	for _, path := range []string{
		"github.com/containerd/nri", "github.com/containernetworking/cni", "github.com/containernetworking/plugins",
		"k8s.io/dynamic-resource-allocation", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/google/cel-go",
	} {
		if !direct[path] {
			t.Errorf("go.mod does not require %s directly", path)
		}
	}
}

// Every folder with Go code says what its one rule is.
func TestEveryPackageHasADoc(t *testing.T) {
	for room := range rooms(t) {
		if room == "docs" || strings.HasPrefix(room, "cmd/") || room == "deploy" || room == "e2e" {
			continue
		}
		documented := false
		files, err := filepath.Glob(filepath.Join("..", room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil && strings.Contains(file.Doc.Text(), "The rule of this package")
		}
		if !documented {
			t.Errorf("no file of %s has a package comment with \"The rule of this package\"", room)
		}
	}
}
