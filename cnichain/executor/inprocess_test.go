package executor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// function is an in-process plugin that only accepts ADD.
type function func(ctx context.Context, args *skel.CmdArgs) ([]byte, error)

func (function) Accepts(command string, _ []byte) bool { return command == "ADD" }

func (f function) Call(ctx context.Context, _ string, args *skel.CmdArgs) ([]byte, error) {
	return f(ctx, args)
}

// A plugin runs in this process only if it is called by the path to its program and accepts the call. Its output
// matches that of a separate process.
func TestInProcess(t *testing.T) {
	dir := t.TempDir()
	program, other := filepath.Join(dir, "own"), filepath.Join(dir, "other")
	for _, path := range []string{program, other} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho process\n"), 0o755); err != nil { //nolint:gosec // a plugin
			t.Fatal(err)
		}
	}
	lock := filepath.Join(dir, "lock")
	exec := executor.InProcessExec{PluginExec: executor.PluginExec{Lock: lock}}
	call := func(ctx context.Context, path, command string, plugin function) (string, error) {
		exec.Plugins = map[string]executor.InProcess{program: plugin}
		output, err := exec.Call(ctx, path, []byte("{}"),
			[]string{"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command,
				"CNI_CONTAINERID=c", "CNI_NETNS=/n", "CNI_IFNAME=net1", "CNI_ARGS=A=b;C=d", "CNI_PATH=/x:/y"})
		if (err == nil) != (output.ExitCode == 0) {
			t.Errorf("exit status %d does not match error %v", output.ExitCode, err)
		}
		return strings.TrimSpace(string(output.Stdout)), err
	}
	answers := func(_ context.Context, args *skel.CmdArgs) ([]byte, error) {
		want := skel.CmdArgs{ContainerID: "c", Netns: "/n", IfName: "net1", Args: "A=b;C=d", Path: "/x:/y",
			StdinData: []byte("{}")}
		if string(args.StdinData) != string(want.StdinData) || args.ContainerID != want.ContainerID ||
			args.Netns != want.Netns || args.IfName != want.IfName || args.Args != want.Args || args.Path != want.Path {
			t.Errorf("plugin was called with the wrong arguments: %+v", args)
		}
		if file, err := os.Open(lock); err != nil || //nolint:gosec // the test's own
			!errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
			t.Errorf("the lock was not held while the plugin ran: %v", err)
		}
		return []byte("function"), nil
	}
	for _, test := range []struct{ path, command, want string }{
		{program, "ADD", "function"}, {program, "DEL", "process"}, {other, "ADD", "process"},
	} {
		if output, err := call(t.Context(), test.path, test.command, answers); err != nil || output != test.want {
			t.Errorf("%s %s returned %q, %v; want %q", filepath.Base(test.path), test.command, output, err, test.want)
		}
	}
	if err := exec.AwaitEarlier(t.Context(), 0); err != nil {
		t.Errorf("the lock was still held after the call: %v", err)
	}
	_, err := call(t.Context(), program, "ADD", func(context.Context, *skel.CmdArgs) ([]byte, error) {
		return nil, types.NewError(types.ErrTryAgainLater, "later", "")
	})
	if printed := (*types.Error)(nil); !errors.As(err, &printed) || printed.Code != types.ErrTryAgainLater {
		t.Errorf("unexpected error: %v", err)
	}
	_, err = call(t.Context(), program, "ADD", func(context.Context, *skel.CmdArgs) ([]byte, error) { panic("oops") })
	if err == nil || !strings.Contains(err.Error(), "own: panic: oops") {
		t.Errorf("wrong error for a panic: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = call(ended, program, "ADD", func(context.Context, *skel.CmdArgs) ([]byte, error) {
		t.Error("the plugin was called after its context had ended")
		return nil, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("unexpected error: %v", err)
	}
}
