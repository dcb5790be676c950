package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// concurrent lists imports that are only useful in code that runs in several goroutines. sync.OnceValue and similar
// functions are allowed: without goroutines, they are never called concurrently.
const concurrent = " sync/atomic golang.org/x/sync/errgroup golang.org/x/sync/singleflight "

// The packages that are tested without the race detector (PURE in the Makefile) use neither goroutines nor locks, in
// either code or tests.
func TestPurePackagesStartNoGoroutines(t *testing.T) {
	roots := purePackages(t)
	for _, root := range roots {
		// If a package is missing, "go test" fails without testing any of the other packages.
		if _, err := os.Stat(filepath.Join("..", strings.TrimSuffix(root, "/..."))); err != nil {
			t.Errorf("PURE in the Makefile lists %s: %v", root, err)
		}
	}
	files := 0
	eachGoFile(t, func(path string, text []byte) {
		if !isBelow(path, roots) {
			return
		}
		files++
		for _, finding := range concurrency(t, path, text) {
			t.Errorf("%s: remove the package from PURE in the Makefile", finding)
		}
	})
	if files < 50 {
		t.Errorf("only %d files were checked, want at least 50", files)
	}
}

// The function concurrency finds goroutines and locks.
func TestConcurrencyIsFound(t *testing.T) {
	for text, want := range map[string]int{
		"package p\n\nimport \"sync\"\n\nvar mu sync.Mutex\n":            1,
		"package p\n\nimport other \"sync\"\n\nvar mu other.Mutex\n":     1,
		"package p\n\nimport \"sync/atomic\"\n\nvar n atomic.Int32\n":    1,
		"package p\n\nfunc f() { go f() }\n":                             1,
		"package p\n\nimport \"strings\"\n\nvar _ = strings.Title\n":     0,
		"package p\n\nimport \"sync\"\n\nvar f = sync.OnceValue(read)\n": 0,
	} {
		if found := concurrency(t, "p.go", []byte(text)); len(found) != want {
			t.Errorf("%s: found %q, want %d findings", text, found, want)
		}
	}
}

// purePackages returns the packages listed in PURE, without "./". Patterns end in "...".
func purePackages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":="); found && strings.TrimSpace(name) == "PURE" {
			return strings.Fields(strings.ReplaceAll(value, "./", ""))
		}
	}
	t.Fatal("the Makefile does not set PURE")
	return nil
}

// isBelow reports whether a file belongs to one of the packages.
func isBelow(path string, packages []string) bool {
	for _, name := range packages {
		tree, isTree := strings.CutSuffix(name, "...")
		if filepath.Dir(path) == name || isTree && strings.HasPrefix(path, tree) {
			return true
		}
	}
	return false
}

// concurrency returns the lines in a file that start goroutines or import packages for concurrent code.
func concurrency(t *testing.T, path string, text []byte) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			found = append(found, set.Position(node.Pos()).String()+" starts a goroutine")
		case *ast.ImportSpec:
			name := strings.Trim(node.Path.Value, `"`)
			if strings.Contains(concurrent, " "+name+" ") || name == "sync" && node.Name != nil {
				found = append(found, set.Position(node.Pos()).String()+" imports "+node.Path.Value)
			}
		case *ast.SelectorExpr:
			if pkg, ok := node.X.(*ast.Ident); ok && pkg.Name == "sync" && !strings.HasPrefix(node.Sel.Name, "Once") {
				found = append(found, set.Position(node.Pos()).String()+" uses sync."+node.Sel.Name)
			}
		}
		return true
	})
	return found
}
