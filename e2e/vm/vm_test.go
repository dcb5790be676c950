package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the time limit for any operation in a machine. Operations take seconds if the processors are otherwise
// idle.
const patience = 3 * time.Minute

func prepared(t *testing.T) *Image {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines")
	}
	image, err := Prepare(t.Context(), Options{Progress: t.Output()})
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestRun(t *testing.T) {
	image := prepared(t)
	share, seen := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(seen, "file"), []byte("seen"), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = `
		cat /seen/file; echo " $WORD $PWD"
		ls /sys/bus/pci/drivers/igb /sys/bus/pci/drivers/igbvf | grep ^0000
		cat /sys/bus/pci/devices/0000:{41,81,42}:00.0/numa_node
		touch /seen/other 2>/dev/null || echo read-only
		echo done > /share/result
		exit 3`
	var output bytes.Buffer
	result, err := image.Run(t.Context(), Command{
		Args: []string{"bash", "-c", script}, Env: []string{"WORD=word"}, Dir: "/tmp", PFs: 3, VFs: 2, Share: share,
		Folders: map[string]string{seen: "/seen"}, Output: &output, Timeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("boot %s, command %s", result.Boot, result.Command)
	want := strings.Join([]string{
		"seen word /tmp", "0000:41:00.0", "0000:42:00.0", "0000:81:00.0",
		"0000:41:10.0", "0000:41:10.2", "0000:42:10.0", "0000:42:10.2", "0000:81:10.0", "0000:81:10.2", "0", "1", "0",
		"read-only", "",
	}, "\n")
	if result.ExitCode != 3 || output.String() != want {
		t.Errorf("got exit code %d and output\n%s\nwant exit code 3 and\n%s", result.ExitCode, output.String(), want)
	}
	if data, err := os.ReadFile(filepath.Join(share, "result")); err != nil || string(data) != "done\n" {
		t.Errorf("content of the shared directory = %q, %v; want \"done\"", data, err)
	}
}

func TestRunOfNothing(t *testing.T) {
	_, err := prepared(t).Run(t.Context(), Command{Args: []string{"no-such-command"}, Timeout: patience})
	if err == nil || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("error for a missing command = %v, want one that names the command", err)
	}
}

func TestTimeout(t *testing.T) {
	image := prepared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := image.Run(ctx, Command{Args: []string{"sleep", "infinity"}, Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "did not end within 1s") || ctx.Err() != nil {
		t.Errorf("error for a machine that does not end = %v, want a timeout", err)
	}
}

// doomedVariable is the environment variable that makes the test binary act as the caller to be killed by the test.
const doomedVariable = "VM_TEST_DOOMED"

func TestMain(m *testing.M) {
	if os.Getenv(doomedVariable) == "" {
		os.Exit(m.Run())
	}
	image, err := Prepare(context.Background(), Options{})
	if err == nil {
		_, err = image.Run(context.Background(), Command{Args: []string{"bash", "-c", "echo running; sleep infinity"},
			Output: os.Stdout})
	}
	fmt.Println(err)
	os.Exit(1)
}

// A machine terminates together with the process that started it, even if that process is killed.
func TestCallerIsKilled(t *testing.T) {
	prepared(t)
	caller := exec.Command("/proc/self/exe")
	caller.Env = append(os.Environ(), doomedVariable+"=1", "TMPDIR="+t.TempDir()) // the caller leaves its files there
	caller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	output, err := caller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, len("running"))
	if _, err := io.ReadFull(output, text); err != nil || string(text) != "running" {
		t.Fatalf("the machine is not running: %q, %v", text, err)
	}
	machine, err := unix.PidfdOpen(child(t, caller.Process.Pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(machine) }() // only names the process
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait() // the caller was killed
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(machine), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	if err != nil || ended != 1 {
		t.Errorf("the machine outlived its caller: %v", err)
	}
}

// child returns the child process of another process.
func child(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has exited
		}
		if fields := strings.Fields(string(data)); len(fields) == 1 {
			number, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
