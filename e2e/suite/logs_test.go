package suite

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// TestLogs checks the driver's real log, at the highest level, against docs/dev/logging.md.
func TestLogs(t *testing.T) {
	e := newEnv(t, "logs")
	e.offerMacvlan("lg0", "10.141.0.0/24")
	e.setVerbosity(6)
	e.create(watchedPod("p", "resourceClaimTemplateName: lg0", "net1"))
	e.ready("p")
	e.deleting("p")
	e.gone("p")
	wanted := []string{
		"Publishing ResourceSlices", "Decided on a device", "Prepared the claim", "Attached the pod",
		"Detached the pod",
		"Answered NodePrepareResources", "Answered NodeUnprepareResources", "Answered the container runtime",
		"Ran a CNI plugin",
	}
	e.eventually("all is logged", func(context.Context) (bool, error) {
		text, err := e.kubectl("", "-n", stack.Namespace, "logs", "daemonset/"+stack.Driver)
		if err != nil {
			return false, err
		}
		for _, message := range wanted {
			if !strings.Contains(text, fmt.Sprintf("] %q", message)) {
				return false, fmt.Errorf("the log does not contain the message %q", message)
			}
		}
		for _, problem := range logProblems(text, productFiles(t)) {
			t.Error(problem)
		}
		return true, nil
	})
}

// setVerbosity restarts the driver with another log level, which applies until the end of the test.
func (e *env) setVerbosity(level int) {
	e.Helper()
	daemonSets := e.client.AppsV1().DaemonSets(stack.Namespace)
	set := func(argument string) (before string) {
		daemonSet, err := daemonSets.Get(context.Background(), stack.Driver, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		arguments := daemonSet.Spec.Template.Spec.Containers[0].Args
		i := slices.IndexFunc(arguments, func(argument string) bool { return strings.HasPrefix(argument, "--v=") })
		if i < 0 {
			e.Fatalf("the driver's arguments %q do not include --v", arguments)
		}
		before, arguments[i] = arguments[i], argument
		if _, err := daemonSets.Update(context.Background(), daemonSet, metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
		output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "status", "daemonset/"+stack.Driver,
			"--timeout=60s")
		if err != nil {
			e.Fatal(err, output)
		}
		e.driverReady()
		return before
	}
	before := set(fmt.Sprintf("--v=%d", level))
	e.Cleanup(func() { set(before) })
}

// productFiles returns the names of the product's Go files. Log lines from libraries follow other rules.
func productFiles(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, dir := range []string{"plugin", "cnichain", "discovery", "policy", "slices", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files[filepath.Base(path)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// logProblems returns the log lines written by code in the given files that break the rules. The value of a key may
// continue on lines that begin with white space (klog).
func logProblems(text string, files map[string]bool) (problems []string) {
	const value = `(?:"(?:[^"\\]|\\.)*"|\[(?:"(?:[^"\\]|\\.)*"|[^\]"])*\]|<|[^\s"\[]*)`
	line := regexp.MustCompile(`^([IWEF])\d{4} [0-9:.]{15} +\d+ ([^:\s]+):\d+\] (.*)$`)
	body := regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"((?: [^\s="]+=` + value + `)*)$`)
	pair := regexp.MustCompile(` ([^\s="]+)=` + value)
	key := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	for written := range strings.Lines(text) {
		written = strings.TrimRight(written, "\n")
		if written == "" || strings.HasPrefix(written, "\t") || strings.HasPrefix(written, " ") {
			continue
		}
		complain := func(problem string) { problems = append(problems, problem+": "+written) }
		header := line.FindStringSubmatch(written)
		if header == nil {
			complain("not a line of klog")
			continue
		}
		if !files[header[2]] {
			continue
		}
		parts := body.FindStringSubmatch(header[3])
		if parts == nil {
			complain("not a quoted message with pairs of keys and values")
			continue
		}
		message := parts[1]
		if first := message[:min(1, len(message))]; first != strings.ToUpper(first) ||
			strings.HasSuffix(message, ".") || message == "" {
			complain("the message does not begin with a capital letter, or ends with a full stop")
		}
		pairs := pair.FindAllStringSubmatch(parts[2], -1)
		for _, found := range pairs {
			if !key.MatchString(found[1]) {
				complain("the key " + found[1] + " is not in lowerCamelCase")
			}
		}
		if header[1] == "E" && (len(pairs) == 0 || pairs[0][1] != "err") {
			complain("an error does not begin with err=")
		}
	}
	return problems
}

// logProblems finds lines that break the rules.
func TestLogProblems(t *testing.T) {
	const header = "1122 12:15:23.918605       1 ours.go:71] "
	for line, want := range map[string]string{
		`I` + header + `"Attached the pod" pod="a/b" duration="3ms" n=1`:     "",
		`E` + header + `"Cannot attach the pod" err="no \"x\"" pod="a/b"`:    "",
		"E" + header + "\"Cannot attach the pod\" err=<\n\ttwo\n\tlines\n >": "",
		`I1122 12:15:23.918605       1 library.go:7] whatever it says`:       "",
		`time="2026" level=info msg="x"`:                                     "not a line of klog",
		`I` + header + `Attached the pod`:                                    "not a quoted message",
		`I` + header + `"attached the pod"`:                                  "capital letter",
		`I` + header + `"Attached the pod."`:                                 "full stop",
		`I` + header + `"Attached the pod" cni-dir="x"`: "cni-dir is not in " +
			"lowerCamelCase",
		`E` + header +
			`"Cannot attach the pod" pod="a/b"`: "does not begin with err=",
		`I` + header + `"Looked at devices" reasons=["a","b c"] again="30s" path="/x y" n=0`: "",
	} {
		problems := logProblems(line+"\n", map[string]bool{"ours.go": true})
		if want == "" && len(problems) > 0 || want != "" &&
			(len(problems) != 1 || !strings.Contains(problems[0], want)) {
			t.Errorf("%s: got problems %q, want %q", line, problems, want)
		}
	}
}
