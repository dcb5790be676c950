package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every e2e test is run by a make target.
func TestTargetsRunAllTests(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var run []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " test ") || strings.Contains(line, "$(RACE)") {
			run = append(run, regexp.MustCompile(`\./e2e\S*`).FindAllString(line, -1)...)
		}
	}
	packages := 0
	err = filepath.WalkDir("../e2e", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hasModule(file) && file != "../e2e":
			return fs.SkipDir // kubevirt, which is tested by a separate target
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		packages++
		dir := "." + strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "..")
		isRun := slices.Contains(run, dir)
		for above := dir; above != "./e2e"; above = "./" + path.Dir(above) {
			isRun = isRun || slices.Contains(run, above+"/...")
		}
		if isRun {
			return nil
		}
		t.Errorf("no Makefile target runs %s in %s", filepath.Base(file), dir)
		return nil
	})
	if err != nil || packages < 50 {
		t.Fatalf("found only %d test files, error: %v", packages, err)
	}
}

// For users who work in a checkout, the documents refer to the Helm binary that "make chart" builds.
func TestChartBuildsTheHelmOfTheDocuments(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	howto, err := os.ReadFile("howto.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(howto), "\n## Install with Helm\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "`make chart`") || !strings.Contains(section, "`bin/tools/helm`") {
		t.Errorf("the section does not describe how to build and find Helm:\n%s", section)
	}
	if !strings.Contains(string(makefile), "\nchart: $(TOOLS)/helm ") {
		t.Error("make chart does not build Helm")
	}
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// The output of "make help" contains escape sequences only if it goes to a terminal and NO_COLOR is not set.
func TestColoursOfMakeHelp(t *testing.T) {
	for _, program := range []string{"make", "script"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	help := []string{"make", "--no-print-directory", "-C", "..", "help"}
	onTerminal := []string{"script", "--quiet", "--return", "--command", strings.Join(help, " "), "/dev/null"}
	for _, c := range []struct {
		name        string
		command     []string
		environment string
		want        bool
	}{
		{"file", help, "NO_COLOR=", false},
		{"terminal", onTerminal, "NO_COLOR=", true},
		{"NO_COLOR", onTerminal, "NO_COLOR=1", false},
	} {
		cmd := exec.CommandContext(t.Context(), c.command[0], c.command[1:]...)
		cmd.Env = append(os.Environ(), "TERM=xterm", c.environment)
		output, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "Show this help") {
			t.Fatalf("%s: %v\n%s", c.name, err, output)
		}
		if have := strings.Contains(string(output), "\033["); have != c.want {
			t.Errorf("%s: output contains colors: %v, want %v", c.name, have, c.want)
		}
	}
}
