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

// InProcess is a CNI plugin that this process can be, besides being a program. Implementations are safe for concurrent
// use.
type InProcess interface {
	// Accepts reports whether Call can take an order. If not, the program is run. Call leaves nothing of an ADD that
	// outlives the machine: an order that would is not accepted.
	Accepts(command string, stdin []byte) bool
	// Call does what a process of the plugin would, and returns what it would print. It leaves no more behind when this
	// process is killed in the middle than a process of the plugin that is killed there. It returns when all is done
	// that it has begun: nothing can end it, so it must not wait for long on anything but the kernel and ctx.
	Call(ctx context.Context, command string, args *skel.CmdArgs) (stdout []byte, err error)
}

// InProcessExec runs some programs as a part of this process: the programs of the driver itself, at the paths where it
// has installed them. All others run as processes.
type InProcessExec struct {
	PluginExec
	// Plugins by the paths of their programs.
	Plugins map[string]InProcess
}

// Call implements [Exec]. A plugin in this process also holds [PluginExec.Lock]: the kernel completes the requests of a
// killed process, and only then closes its files.
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
	// A call does not begin if its caller has given up. A running call is never interrupted, like a process within
	// finishGrace.
	if err = context.Cause(ctx); err == nil {
		var stdout []byte
		if stdout, err = callRecovered(ctx, plugin, command, args); err == nil {
			return CallOutput{Stdout: stdout}, nil
		}
	}
	return CallOutput{ExitCode: 1}, &ExecError{Plugin: filepath.Base(path), ExitCode: 1, Err: err}
}

// Persists implements [Exec].
func (e InProcessExec) Persists(path, command string, stdin []byte) bool {
	plugin, known := e.Plugins[path]
	return !known || !plugin.Accepts(command, stdin)
}

// callRecovered makes an error of a panic, as the end of a process would be one.
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

// orderOf reads the environment of a call (CNI specification, section 2 "Parameters").
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
