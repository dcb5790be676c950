package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
)

// InProcess is a CNI plugin that can run in this process instead of as a separate program. Implementations are safe for
// concurrent use.
type InProcess interface {
	// Accepts reports whether Call can handle a request. If Accepts returns false, the plugin's program is run instead.
	// Accepts must not return true for an ADD that leaves behind state that survives a reboot.
	Accepts(command string, stdin []byte) bool
	// Call has the same effect as running the plugin's program, and returns the output that the program would print. If
	// this process is killed during the call, the call leaves no more state behind than the program would if it were
	// killed. Call does not return until all work that it has started is done. It cannot be interrupted, so it must not
	// block for long on anything except the kernel and ctx.
	Call(ctx context.Context, command string, args *skel.CmdArgs) (stdout []byte, err error)
}

// InProcessExec runs the driver's own plugins in this process. It identifies them by the paths where the driver has
// installed them. All other plugins run as separate processes.
type InProcessExec struct {
	PluginExec
	// Plugins maps the paths of programs to plugins.
	Plugins map[string]InProcess
}

// Call implements [Exec]. It also holds [PluginExec.Lock] while a plugin runs in this process. The lock is effective
// even if this process is killed, since the kernel completes pending system calls before it closes a process's files.
func (e InProcessExec) Call(ctx context.Context, path string, stdin []byte, environ []string) (CallOutput, error) {
	plugin, known := e.Plugins[path]
	command, args := orderOf(environ, stdin)
	if !known || !plugin.Accepts(command, stdin) {
		return e.PluginExec.Call(ctx, path, stdin, environ)
	}
	lock, err := e.lock(syscall.LOCK_SH)
	if err != nil {
		return CallOutput{ExitCode: -1}, err
	}
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	// Do not start the call if the caller has given up. Once started, a call is never interrupted, like a process
	// within finishGrace.
	if err = context.Cause(ctx); err == nil {
		var stdout []byte
		if stdout, err = callRecovered(ctx, plugin, command, args); err == nil {
			return CallOutput{Stdout: stdout}, nil
		}
	}
	return CallOutput{ExitCode: 1}, &ExecError{Plugin: filepath.Base(path), ExitCode: 1, Err: err}
}

// Persists implements [Exec]. Requests that run in this process never leave persistent state behind.
func (e InProcessExec) Persists(path, command string, stdin []byte) bool {
	plugin, known := e.Plugins[path]
	return !known || !plugin.Accepts(command, stdin)
}

// callRecovered converts a panic into an error, as if a plugin process had crashed.
func callRecovered(
	ctx context.Context, plugin InProcess, command string, args *skel.CmdArgs,
) (stdout []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v\n%s", reason, debug.Stack()))
		}
	}()
	return plugin.Call(ctx, command, args)
}

// orderOf parses the environment of a call (CNI specification, section 2 "Parameters").
func orderOf(environ []string, stdin []byte) (command string, args *skel.CmdArgs) {
	args = &skel.CmdArgs{StdinData: stdin}
	for _, variable := range environ {
		switch name, value, _ := strings.Cut(variable, "="); name {
		case "CNI_COMMAND":
			command = value
		case "CNI_CONTAINERID":
			args.ContainerID = value
		case "CNI_NETNS":
			args.Netns = value
		case "CNI_IFNAME":
			args.IfName = value
		case "CNI_ARGS":
			args.Args = value
		case "CNI_PATH":
			args.Path = value
		}
	}
	return command, args
}
