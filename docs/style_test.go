package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the maximum width of a line of code; a tab counts as four columns.
const maxColumns = 120

// longLines is the number of longer lines that are accepted per thousand: raw strings and generator markers cannot be
// wrapped.
const longLines = 3

// eachGoFile calls visit for every Go file that is not generated.
func eachGoFile(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasPrefix(entry.Name(), "zz_generated") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			visit(strings.TrimPrefix(path, "../"), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// idioms lists identifiers that have a standard alternative: query or request, validate, report or emit, inspect or
// check, reserve, assign, missing, duplicate, onHost.
const idioms = "ask judge Judge tell Tell look take give turn late twice lacks home apart overdrawn wishes grant " +
	"born unfit sayable passedOn heard forsaken"

// No identifier is an English function word or one of the idioms (STYLE.md, "Names").
func TestIdentifiersAreNoFunctionWords(t *testing.T) {
	eachGoFile(t, func(path string, text []byte) {
		for _, name := range functionWords(t, path, text) {
			t.Error(name)
		}
	})
}

// functionWords returns the declarations in a file whose identifiers are function words.
func functionWords(t *testing.T, path string, text []byte) (found []string) {
	t.Helper()
	words := map[string]string{}
	for _, word := range strings.Fields("of on to in at from into is was one own there others") {
		words[word] = "is a function word; take a noun or a verb"
	}
	for _, word := range strings.Fields(idioms) {
		words[word] = "is no word of the field; STYLE.md says which are"
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	note := func(names ...*ast.Ident) {
		for _, name := range names {
			if problem := words[name.Name]; problem != "" {
				found = append(found, set.Position(name.Pos()).String()+": "+name.Name+" "+problem)
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Field:
			note(node.Names...)
		case *ast.ValueSpec:
			note(node.Names...)
		case *ast.TypeSpec:
			note(node.Name)
		case *ast.FuncDecl:
			note(node.Name)
		case *ast.AssignStmt:
			if node.Tok == token.DEFINE {
				note(identifiers(node.Lhs...)...)
			}
		case *ast.RangeStmt:
			if node.Tok == token.DEFINE {
				note(identifiers(node.Key, node.Value)...)
			}
		}
		return true
	})
	return found
}

func identifiers(expressions ...ast.Expr) (names []*ast.Ident) {
	for _, expression := range expressions {
		if name, ok := expression.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}

// The function functionWords finds every form of declaration.
func TestFunctionWordsAreFound(t *testing.T) {
	const code = `package p
type of struct{ in int }
const on = 1
func (r of) at(from int) (to int) {
	one, x := 1, 2
	for is, was := range []int{} { _, _ = is, was }
	var own = one + x
	one = own
	return
}
func (r of) tell() {}
`
	if found := functionWords(t, "p.go", []byte(code)); len(found) != 11 {
		t.Errorf("found %d names, want 11:\n%s", len(found), strings.Join(found, "\n"))
	}
}

// Lines are at most 120 columns wide, except for a few that cannot be wrapped.
func TestLinesAreNotTooLong(t *testing.T) {
	lines, long := 0, []string{}
	eachGoFile(t, func(path string, text []byte) {
		for line := range strings.Lines(string(text)) {
			lines++
			if utf8.RuneCountInString(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")) > maxColumns {
				long = append(long, path+": "+strings.TrimSpace(line))
			}
		}
	})
	if most := lines * longLines / 1000; len(long) > most {
		t.Errorf("%d of %d lines have more than %d columns, at most %d may:\n%s", len(long), lines, maxColumns, most,
			strings.Join(long, "\n"))
	}
}

// A directory with too many files should be split into two packages (STYLE.md, "Layout").
func TestDirectoriesAreNotTooLarge(t *testing.T) {
	const most = 26
	files := map[string]int{}
	eachGoFile(t, func(path string, _ []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(path)]++
		}
	})
	for dir, n := range files {
		if n > most {
			t.Errorf("%s has %d Go files, more than the maximum of %d: move some to a new package", dir, n, most)
		}
	}
}
