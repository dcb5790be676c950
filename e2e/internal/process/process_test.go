package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFind finds a child process of the test by every supported property.
func TestFind(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "waiting-child")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(program, "-test.run=^TestChild$", "an argument")
	child.Env = append(os.Environ(), "PROCESS_TEST_CHILD="+program)
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = input.Close(), child.Wait() })

	namespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	mine := HasVariable("PROCESS_TEST_CHILD", program)
	for name, c := range map[string]struct {
		match Match
		found bool
	}{
		"its program":          {Runs(filepath.Base(self)), true},
		"another program":      {Runs("waiting"), false},
		"an argument":          {HasArgument(func(arg string) bool { return arg == "an argument" }), true},
		"the name of the call": {HasArgument(func(arg string) bool { return arg == program }), true},
		"no argument":          {HasArgument(func(arg string) bool { return arg == "argument" }), false},
		"another value":        {HasVariable("PROCESS_TEST_CHILD", "waiting-child"), false},
		"its namespace":        {InNamespace("net", namespace), true},
		"another namespace":    {InNamespace("net", "net:[1]"), false},
		"outside its own":      {OutsideNamespace("net", namespace), false},
		"outside another":      {OutsideNamespace("net", "net:[1]"), true},
	} {
		found, err := One(mine, c.match)
		if c.found && (err != nil || found.PID != child.Process.Pid) {
			t.Errorf("%s: found %d (%v), want %d", name, found.PID, err, child.Process.Pid)
		}
		if !c.found && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: found %d (%v), want none", name, found.PID, err)
		}
	}
	if _, err := One(InNamespace("net", namespace)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error for several processes = %v, want one other than not found", err) // the test and its child
	}
	found, err := One(mine)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := Status(found); err != nil || status.VmRSS < 1<<20 || status.VmHWM < status.VmRSS {
		t.Errorf("implausible memory of a Go program: %d, with a peak of %d (%v)", status.VmRSS, status.VmHWM, err)
	}
}

// TestChild is the child process of TestFind. It waits until its parent exits.
func TestChild(t *testing.T) {
	if os.Getenv("PROCESS_TEST_CHILD") == "" {
		t.Skip("only runs as a child process of TestFind")
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}
