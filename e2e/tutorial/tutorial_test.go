package tutorial

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// part is a block of commands with the expected output.
type part struct {
	commands, output string
}

// read returns the command blocks in a document. Each block marked as console is a command block, and the next block
// marked as text is its output.
func read(t *testing.T, path string) []part {
	t.Helper()
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var parts []part
	for _, block := range regexp.MustCompile(
		"(?sm)^```(console|text)\n(.*?)^```$",
	).FindAllStringSubmatch(string(document), -1) {
		if block[1] == "console" {
			parts = append(parts, part{commands: block[2]})
		} else {
			parts[len(parts)-1].output = block[2]
		}
	}
	return parts
}

// pattern returns a regular expression for a line of output. A run of blanks matches any number of blanks, and …
// matches anything.
func pattern(line string) *regexp.Regexp {
	words := strings.Fields(line)
	for i := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(words[i]), "…", ".*")
	}
	return regexp.MustCompile(`(?m)^\s*` + strings.ReplaceAll(strings.Join(words, `\s+`), `.*\s+`, `.*\s*`) + `\s*$`)
}

// varying matches the parts of the demo's output that differ between runs: claim names, MACs, addresses, times.
var varying = regexp.MustCompile(`(net-)[a-z0-9]{5}\b|([0-9a-f]{2}:){5}[0-9a-f]{2}|\d+(\.\d+)+`)

// checkExcerpt checks that the excerpt from the demo's output in README.md is up to date: the demo's output must
// contain the excerpt's lines in the same order.
func checkExcerpt(t *testing.T, shown, printed string) {
	t.Helper()
	if strings.Count(shown, "\n") < 10 {
		t.Errorf("README.md shows too little of the demo:\n%s", shown)
	}
	rest := printed
	for line := range strings.Lines(shown) {
		found := pattern(varying.ReplaceAllString(line, "$1…")).FindStringIndex(rest)
		if found == nil {
			t.Errorf("README.md shows this line:\n%s\nbut the demo printed\n%s", line, printed)
			return
		}
		rest = rest[found[1]:]
	}
}

// The commands run in one shell, as in a terminal. The shell exits at the first command that fails.
func TestTutorial(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes in private namespaces")
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := lab(clone, "exec", "--", "true"); err == nil {
		t.Skip("a cluster named demo is running; run bin/lab --name demo down")
	}
	t.Cleanup(func() {
		_ = lab(clone, "down") // in case the tutorial did not get this far
		_ = os.RemoveAll(filepath.Join(clone, "bin", "tutorial"))
	})
	parts := read(t, filepath.Join(clone, "docs", "tutorial.md"))
	if len(parts) < 10 {
		t.Fatalf("the tutorial has only %d blocks of commands, want at least 10", len(parts))
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for i, p := range parts {
		fmt.Fprintf(&script, "echo '=== part %d'\n%s", i, p.commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // includes a build without a cache
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = clone
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill all children, which keep the output open
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	err = cmd.Run()
	printed := strings.Split(output.String(), "=== part ")
	for i, p := range parts[:min(len(parts), len(printed)-1)] {
		rest := printed[i+1]
		for line := range strings.Lines(p.output) {
			found := pattern(line).FindStringIndex(rest)
			if found == nil {
				t.Errorf("commands\n%s\nshould print\n%s\nbut printed\n%s", p.commands, line, printed[i+1])
				break
			}
			rest = rest[found[1]:]
		}
	}
	if err != nil {
		t.Fatalf("the commands failed: %v:\n%s", err, printed[len(printed)-1])
	}
	checkExcerpt(t, read(t, filepath.Join(clone, "README.md"))[0].output, printed[1])
	t.Logf("%d blocks of commands in %.0f s", len(parts), time.Since(start).Seconds())
}

// TestReadme runs the commands in README.md on a cluster node: those for the reader's own cluster, and those for a
// single machine. It skips commands that CI runs anyway, and commands that create the clone.
func TestReadme(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes in private namespaces")
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command(clone+"/bin/lab", "--name", "readme", "down").Run() })
	// deploy imports the images, which readers would pull from a registry
	for _, command := range []string{"up", "deploy"} {
		start := exec.CommandContext(t.Context(), clone+"/bin/lab", "--name", "readme", command)
		start.Dir = clone
		if output, err := start.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	script := `set -euo pipefail
cd "$1"
sudo() { "$@"; }
ip link add eth1 type veth peer name eth1-far
ip link add uplink0 type veth peer name uplink0-far
`
	ran := 0
	for _, p := range read(t, filepath.Join(clone, "README.md")) {
		if strings.HasPrefix(p.commands, "git clone") {
			continue
		}
		script += p.commands
		ran++
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(clone, "bin", "lab"), "--name", "readme", "exec", "--",
		"bash", "-c", script, "readme", clone)
	output, err := cmd.CombinedOutput()
	if err != nil || ran != 2 {
		t.Fatalf("ran %d blocks (%v), want 2:\n%s", ran, err, output)
	}
	t.Logf("%s", output)
}

// lab runs a lab command on the demo's cluster.
func lab(clone string, command ...string) error {
	return exec.Command(filepath.Join(clone, "bin", "lab"), append([]string{"--name", "demo"}, command...)...).Run()
}

func TestVarying(t *testing.T) {
	shown := "a-net-rfks4  eth0  10.78.0.2/24  86:ba:76:14:51:e8"
	p := pattern(varying.ReplaceAllString(shown, "$1…"))
	if !p.MatchString("a-net-x7k2p eth0 10.78.0.13/24   00:ba:76:14:51:e9") ||
		p.MatchString("a-net-x7k2p eth1 10.78.0.2/24 86:ba:76:14:51:e8") {
		t.Errorf("pattern %s matches the wrong lines", p)
	}
}

func TestPattern(t *testing.T) {
	for line, test := range map[string]struct{ printed, not string }{
		"a … c":           {"a  b\tc", "a b"},
		"…x…":             {"yxz", "yz"},
		"1400":            {"1400 ", "14000"},
		`{…"a":"b"…"c"…}`: {`{"z":1,"a":"b","c":2}`, `{"a":"c"}`},
		"NAME … STATUS …": {"NAME STATUS ROLES", "STATUS NAME"},
	} {
		if p := pattern(line); !p.MatchString(test.printed) || p.MatchString(test.not) {
			t.Errorf("%q was converted to pattern %s, which matches the wrong lines", line, p)
		}
	}
}
