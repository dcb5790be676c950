package executor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"
)

// script writes a plugin as a shell script.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCallKeepsWhatThePluginSays(t *testing.T) {
	path := script(t, `echo "loading" >&2; echo '{"code":110,"msg":"link is down","details":"p0"}'; exit 1`)
	output, err := PluginExec{}.Call(context.Background(), path, nil, nil)
	var plugin *types.Error
	if !errors.As(err, &plugin) || plugin.Code != 110 ||
		!contains(err.Error(), "link is down", "p0", "CNI code 110", "loading") {
		t.Errorf("unexpected error: %v", err)
	}
	if output.ExitCode != 1 || !contains(string(output.Stderr), "loading") {
		t.Errorf("output = %+v, want exit code 1 and the loader's error", output)
	}
}

// The kernel also returns "no such file" if the interpreter is missing. That would mislead users without an
// explanation.
func TestCallOfAPluginWithoutItsInterpreter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/nowhere/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const why = "the file exists, but its interpreter or dynamic loader is not"
	if _, err := (PluginExec{}).Call(t.Context(), path, nil, nil); err == nil || !contains(err.Error(), why) {
		t.Errorf("unexpected error: %v", err)
	}
	_, err := PluginExec{}.Call(t.Context(), path+"-away", nil, nil)
	if err == nil || contains(err.Error(), why) {
		t.Errorf("wrong error for a missing file: %v", err)
	}
}

// A plugin may print arbitrary bytes, but its error message is shown to users and sent over protocols that only accept
// UTF-8.
func TestFailuresAreUTF8(t *testing.T) {
	for name, failure := range map[string]*ExecError{
		"cut":     {Plugin: "p", Stderr: strings.Repeat("x", 511) + "…", Err: errors.New("exit status 1")},
		"bytes":   {Plugin: "p", Stderr: "\xff", Err: errors.New("\xfe")},
		"its own": {Plugin: "p", Err: &types.Error{Code: 7, Msg: "\xff" + strings.Repeat("é", 1<<19)}},
	} {
		if text := failure.Error(); !utf8.ValidString(text) || len(text) > 8<<10 {
			t.Errorf("%s: message has %d bytes, valid UTF-8: %v", name, len(text), utf8.ValidString(text))
		}
	}
}

func TestCallGarbage(t *testing.T) {
	_, err := PluginExec{}.Call(context.Background(), script(t, `echo "panic: oops"; exit 2`), nil, nil)
	if err == nil || !contains(err.Error(), "exit status 2", "panic: oops") {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestCallPassesOnlyTheGivenEnvironmentAndStdin(t *testing.T) {
	t.Setenv("DRIVER_SECRET", "x")
	output, err := PluginExec{}.Call(context.Background(), script(t, `cat; echo "<$DRIVER_SECRET>$CNI_COMMAND"`),
		[]byte("in "), []string{"CNI_COMMAND=ADD"})
	if err != nil || strings.TrimSpace(string(output.Stdout)) != "in <>ADD" {
		t.Errorf("output = %q, %v, want stdin and CNI_COMMAND", output.Stdout, err)
	}
}

// A grandchild that keeps the output open must not block the driver.
func TestCallEndsTheWholeGroup(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "survived")
	path := script(t, `(trap "" TERM; sleep 60; touch `+marker+`) & sleep 60`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := PluginExec{}.Call(ctx, path, nil, []string{"PATH=" + os.Getenv("PATH")})
	if err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unexpected error: %v", err)
	}
}

// A plugin whose context is canceled is allowed to finish its work and is not called again.
func TestCallLetsPluginsFinish(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "begun")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	path := script(t, `echo >`+fifo+`; read -r _ <`+fifo+`; echo finished`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(fifo) // returns once the plugin is running
		cancel()
		_ = os.WriteFile(fifo, []byte("go on\n"), 0o600)
	}()
	output, err := PluginExec{}.Call(ctx, path, nil, nil)
	if err != nil || string(output.Stdout) != "finished\n" || ctx.Err() == nil {
		t.Errorf("output = %q, %v, want \"finished\"; context error: %v", output.Stdout, err, ctx.Err())
	}
	if _, err := (PluginExec{}).Call(ctx, path, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("unexpected error: %v", err)
	}
}

// A call that starts late in an attempt is canceled at the attempt's deadline, before its own time limit expires. The
// plugin is then allowed to finish.
func TestCallContext(t *testing.T) {
	e := New(Options{})
	attempt, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	called, release := e.callContext(attempt)
	defer release()
	<-called.Done()
	if !errors.Is(called.Err(), context.Canceled) || !errors.Is(context.Cause(called), context.DeadlineExceeded) {
		t.Errorf("context of the call ended with %v, cause %v", called.Err(), context.Cause(called))
	}
}

// A plugin that hangs is killed after its context is canceled.
func TestCallEndsPluginsThatHang(t *testing.T) {
	t.Parallel() // takes as long as the grace period
	ctx, cancel := context.WithCancel(t.Context())
	fifo := filepath.Join(t.TempDir(), "begun")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.ReadFile(fifo)
		cancel()
	}()
	_, err := PluginExec{}.Call(ctx, script(t, `echo >`+fifo+`; sleep 60`), nil, []string{"PATH=" + os.Getenv("PATH")})
	if !errors.Is(err, context.Canceled) || !contains(err.Error(), "interrupted") {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestCallBoundsOutput(t *testing.T) {
	output, err := PluginExec{}.Call(context.Background(), script(t, `head -c 3000000 /dev/zero`), nil,
		[]string{"PATH=" + os.Getenv("PATH")})
	if err != nil || !output.Truncated || len(output.Stdout) != maxOutput {
		t.Errorf("kept %d bytes, truncated = %v, %v", len(output.Stdout), output.Truncated, err)
	}
}

func TestFindInPathTakesOnlyBareNames(t *testing.T) {
	dir := filepath.Dir(script(t, ""))
	if path, err := (PluginExec{}).FindInPath("plugin", []string{"/nowhere", dir}); err != nil ||
		path != filepath.Join(dir, "plugin") {
		t.Errorf("found plugin at %q, %v", path, err)
	}
	for _, name := range []string{"../plugin", "/bin/sh", "", ".", "..", "a/b", "missing"} {
		if path, err := (PluginExec{}).FindInPath(name, []string{dir}); err == nil {
			t.Errorf("%q was found at %s, want an error", name, path)
		}
	}
}

func TestParseResult(t *testing.T) {
	for text, want := range map[string]string{
		`{"cniVersion":"0.3.1","interfaces":[{"name":"net1","sandbox":"/x"}],"ips":[{"version":"4","interface":0,` +
			`"address":"10.0.0.1/24"}]}`: "",
		`{"cniVersion":"1.1.0"}{"code":4}`: "more than one document",
		``:                                 "no CNI result",
		`null`:                             "no CNI result",
		`hello`:                            "no CNI result",
		`{"cniVersion":"9.9.9"}`:           "9.9.9",
		`{"cniVersion":"1.1.0","interfaces":[{"name":"a"},null]}`:           "interfaces[1] is null",
		`{"cniVersion":"1.1.0","ips":[null]}`:                               "ips[0] is null",
		`{"cniVersion":"1.1.0","ips":[{}]}`:                                 "ips[0] has no address",
		`{"cniVersion":"1.1.0","routes":[null]}`:                            "routes[0] is null",
		`{"cniVersion":"1.1.0","dns":{"search":[null]}}`:                    "dns.search[0] is null",
		`{"cniVersion":"0.4.0","interfaces":[null]}`:                        "interfaces[0] is null",
		`{"cniVersion":"0.3.1","Ips":[null]}`:                               "ips[0] is null",
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/24","routes":[null]}}`: "ip4.routes[0] is null",
		`{"cniVersion":"1.1.0","interfaces":{}}`:                            "no CNI result",
		`{"cniVersion":"1.1.0","ips":[` + strings.Repeat(`{"address":"10.0.0.1/24"},`, mostEntries) +
			`{"address":"10.0.0.1/24"}]}`: "1025 entries in ips",
	} {
		_, err := parseResult([]byte(text), "1.0.0")
		if (err == nil) != (want == "") || err != nil && !contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", text, err, want)
		}
	}
}

func TestMergeResults(t *testing.T) {
	first, err := parseResult(
		[]byte(
			`{"cniVersion":"1.0.0","interfaces":[{"name":"br"},{"name":"net1","sandbox":"/x","mac":"a"}],`+
				`"ips":[{"interface":1,"address":"10.0.0.1/24"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
		), "1.0.0",
	)
	if err != nil {
		t.Fatal(err)
	}
	second, err := parseResult(
		[]byte(
			`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/x","mac":"b"},{"name":"net2",`+
				`"sandbox":"/x"}],"ips":[{"interface":1,"address":"10.0.1.1/24"},{"interface":0,`+
				`"address":"10.0.0.1/24"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
		), "1.0.0",
	)
	if err != nil {
		t.Fatal(err)
	}
	merged := mergeResults(first, nil, second)
	if len(merged.Interfaces) != 3 || merged.Interfaces[1].Mac != "b" || merged.Interfaces[2].Name != "net2" {
		t.Errorf("wrong interfaces: %v", merged.Interfaces)
	}
	if len(merged.IPs) != 2 || *merged.IPs[1].Interface != 2 || len(merged.Routes) != 1 {
		t.Errorf("wrong addresses %v or routes %v", merged.IPs, merged.Routes)
	}
	if first.Interfaces[1].Mac != "a" {
		t.Error("merging changed its input")
	}
}

// The executor waits for running plugins, but not for processes that plugins have left behind.
func TestAwaitEarlierWaitsForPluginsOnly(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		waits  bool
	}{
		"helper":           {script: "sleep 60 </dev/null >/dev/null 2>&1 &\necho $! >PIDS\necho '{}'"},
		"daemon":           {script: "setsid sleep 60 </dev/null >/dev/null 2>&1 &\necho $! >PIDS\necho '{}'"},
		"plugin":           {script: "echo $$ >PIDS\nsleep 60", waits: true},
		"plugin and child": {script: "echo $$ >PIDS\nsleep 60 &\nwait", waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			e := PluginExec{Lock: filepath.Join(t.TempDir(), "cni.lock")}
			path := script(t, strings.ReplaceAll(test.script, "PIDS", pids))
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = e.Call(ctx, path, nil, []string{"PATH=" + os.Getenv("PATH")})
			}()
			defer func() {
				if data, err := os.ReadFile(pids); err == nil { // processes that are still running
					if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
						_ = syscall.Kill(pid, syscall.SIGKILL)
						_ = syscall.Kill(-pid, syscall.SIGKILL)
					}
				}
				cancel()
				<-ended
			}()
			if !test.waits {
				<-ended
			}
			for data, _ := os.ReadFile(pids); len(data) == 0; data, _ = os.ReadFile(pids) {
				runtime.Gosched()
			}
			err := e.AwaitEarlier(context.Background(),
				map[bool]time.Duration{true: 100 * time.Millisecond, false: time.Minute}[test.waits])
			if (err != nil) != test.waits {
				t.Errorf("error = %v, want error: %v", err, test.waits)
			}
		})
	}
}

// holdVariable is the environment variable with the path to a lock that the test binary acquires and holds until its
// standard input is closed.
const holdVariable = "EXECUTOR_TEST_HOLD"

// A driver that was killed while it ran a plugin in its own process holds the lock until the kernel has finished the
// plugin's system call. Like a daemon started by a plugin, the driver may be a session leader.
func TestAwaitEarlierWaitsForDrivers(t *testing.T) {
	if path := os.Getenv(holdVariable); path != "" {
		lock, err := PluginExec{Lock: path}.lock(syscall.LOCK_SH)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	e := PluginExec{Lock: filepath.Join(t.TempDir(), "cni.lock")}
	driver := exec.CommandContext(t.Context(), os.Args[0], //nolint:gosec // this test
		"-test.run=^TestAwaitEarlierWaitsForDrivers$")
	driver.Env = append(os.Environ(), holdVariable+"="+e.Lock)
	driver.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := driver.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "held\n" {
		t.Fatalf("got %q, %v, want \"held\"", line, err)
	}
	if err := e.AwaitEarlier(t.Context(), 100*time.Millisecond); err == nil {
		t.Error("the executor did not wait for a driver that held the lock")
	}
	if err := errors.Join(input.Close(), driver.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := e.AwaitEarlier(t.Context(), time.Minute); err != nil {
		t.Errorf("waiting for the lock failed after the driver exited: %v", err)
	}
}
