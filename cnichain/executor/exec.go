package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

const (
	// maxOutput is the maximum number of bytes kept from each of a plugin's output streams.
	maxOutput = 1 << 20
	// maxMessage is the maximum length of a plugin's error message, in bytes. The full message is in the call log.
	maxMessage = 4096
	// finishGrace is how long a plugin may continue after its context was canceled, for example because its pod was
	// deleted. Killing a plugin while it moves a link may destroy the link: host-device (CNI plugins 1.9) renames it in
	// a temporary network namespace, which is destroyed when the plugin exits, and the kernel then deletes the virtual
	// links in that namespace. Healthy plugins finish in less than a second.
	finishGrace = 5 * time.Second
	// killGrace is the time between SIGTERM and SIGKILL. It also limits how long a plugin's child processes may keep
	// its output open.
	killGrace = 2 * time.Second
)

// ExecError is the error for a failed CNI call. It unwraps to the error that the plugin printed (*types.Error), if any.
type ExecError struct {
	Plugin   string
	ExitCode int
	Stderr   string
	Err      error
}

// Error returns the plugin's message.
func (e *ExecError) Error() string {
	var plugin *types.Error
	text := fmt.Sprintf("%s: %v", e.Plugin, e.Err)
	if errors.As(e.Err, &plugin) {
		text = fmt.Sprintf("%s: %s (CNI code %d)", e.Plugin, plugin.Error(), plugin.Code)
	}
	text = sanitize.Shorten(text, maxMessage)
	if e.Stderr != "" {
		text += "; stderr: " + sanitize.Shorten(e.Stderr, 512)
	}
	return text
}

// Unwrap returns the cause.
func (e *ExecError) Unwrap() error { return e.Err }

// CallOutput contains a plugin's output and exit code, even after a failure. ExitCode is -1 if the program did not
// start or was terminated by a signal. Truncated is true if one of the streams was longer than maxOutput.
type CallOutput struct {
	Stdout, Stderr []byte
	ExitCode       int
	Truncated      bool
}

// PluginExec runs CNI plugins as processes. Unlike the stock implementation of [invoke.Exec], it keeps stderr, limits
// the output, and terminates the plugin's whole process group at the deadline of the context, or five seconds after the
// context is canceled. It does not wait for grandchildren that keep the output open. The zero value is ready to use.
// PluginExec is safe for concurrent use.
type PluginExec struct {
	// Lock is the path to a file that stays locked while a plugin runs, even if the process that called the plugin is
	// killed: see AwaitEarlier. Processes left behind by a plugin also keep the file open. If Lock is empty, no file is
	// locked.
	Lock string
}

var _ invoke.Exec = PluginExec{}

// Persists implements [Exec]. It always returns true, because the effects of a program are unknown.
func (e PluginExec) Persists(string, string, []byte) bool { return true }

// Call runs a plugin and returns its output.
//
// A program that is open for writing cannot be executed (ETXTBSY, execve(2)). In that case, Call retries after 50, 100,
// 200 and 400 ms and then gives up.
func (e PluginExec) Call(ctx context.Context, path string, stdin []byte, environ []string) (CallOutput, error) {
	for attempt := 0; ; attempt++ {
		output, err := e.callOnce(ctx, path, stdin, environ)
		// ETXTBSY means that an installer is still writing the binary.
		if !errors.Is(err, syscall.ETXTBSY) || attempt == 4 {
			return output, err
		}
		select {
		case <-ctx.Done():
			return output, err
		case <-time.After(50 * time.Millisecond << attempt):
		}
	}
}

// callOnce starts a plugin as the leader of its own process group (Setpgid). As a result, a signal to the group also
// reaches the plugin's helpers, a signal to the driver's group does not reach the plugin, and isPlugin can tell the
// plugin apart from a daemon. The plugin inherits the lock file as descriptor 3. Since a flock(2) lock belongs to the
// open file description, it is held until the last process that has inherited the descriptor exits, even if the driver
// exits earlier.
func (e PluginExec) callOnce(ctx context.Context, path string, stdin []byte, environ []string) (CallOutput, error) {
	// exec.Cmd checks only the context "running", which outlives ctx by finishGrace. Without this check, it would start
	// a plugin even if the caller has already given up.
	if ctx.Err() != nil {
		return CallOutput{ExitCode: -1}, &ExecError{Plugin: filepath.Base(path), ExitCode: -1,
			Err: fmt.Errorf("not called: %w", context.Cause(ctx))}
	}
	lock, err := e.lock(syscall.LOCK_SH)
	if err != nil {
		return CallOutput{ExitCode: -1}, err
	}
	stdout, stderr := &boundedBuffer{limit: maxOutput}, &boundedBuffer{limit: maxOutput}
	running, release := untilFinished(ctx)
	defer release()
	cmd := exec.CommandContext(running, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The delay begins when the plugin exits or Cancel is called, whichever comes first. After the delay, os/exec sends
	// SIGKILL to the plugin, and closes the pipes that grandchildren may still hold open. The rest of the group is
	// killed below.
	cmd.WaitDelay = killGrace
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock} // the lock is released when the last process closes the file
		defer func() { _ = lock.Close() }()
	}
	err = cmd.Run()
	if cmd.Process != nil && running.Err() != nil {
		// Kill grandchildren that ignored SIGTERM.
		_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL)
	}
	output := CallOutput{Stdout: stdout.kept.Bytes(), Stderr: stderr.kept.Bytes(), ExitCode: -1,
		Truncated: stdout.truncated || stderr.truncated}
	if cmd.ProcessState != nil {
		output.ExitCode = cmd.ProcessState.ExitCode()
	}
	if err == nil {
		return output, nil
	}
	switch {
	case errors.Is(err, os.ErrNotExist) && exists(path): // execve(2) also returns this error for a missing interpreter
		err = fmt.Errorf("%w: the file exists, but its interpreter or dynamic loader is not in "+
			"the driver's container: use a static binary of the plugin", err)
	case running.Err() == nil: // it exited on its own
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("ended after its time limit: %w", context.Cause(ctx))
	default:
		err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	return output, &ExecError{
		Plugin: filepath.Base(path), ExitCode: output.ExitCode, Stderr: string(bytes.TrimSpace(output.Stderr)),
		Err: pluginError(output, err),
	}
}

// untilFinished returns a context that ends at the deadline of ctx, or finishGrace after ctx is canceled. There is no
// grace period after a deadline, because the caller is still waiting, and a step that has used up its time is assumed
// to be stuck. A deadline that passes after the cancellation does not cut the grace period short.
func untilFinished(ctx context.Context) (running context.Context, release func()) {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			select {
			case <-time.After(finishGrace):
			case <-running.Done():
			}
		}
		end()
	})
	return running, func() { stop(); end() }
}

// lock acquires the lock; it returns nil if no lock is configured. It never waits. A shared lock is refused only while
// another process holds the exclusive lock, which that process does briefly to check that no plugin is running.
func (e PluginExec) lock(mode int) (*os.File, error) {
	if e.Lock == "" {
		return nil, nil
	}
	// Open the file read-only, which also works on a disk that has become read-only.
	file, err := os.OpenFile(e.Lock, os.O_RDONLY|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock CNI calls: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), mode|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock CNI calls: %s: %w", e.Lock, err), file.Close())
	}
	return file, nil
}

// AwaitEarlier waits until all plugins started by an earlier process have exited. That process may have been killed
// during a call, and an ADD that finishes after its DEL would leave behind unrecorded results. AwaitEarlier must be
// called before any rollback.
//
// It polls, since flock(2) has no timeout. Without [PluginExec.Lock], it cannot detect earlier plugins and returns
// immediately. After an error, the caller may continue: either the verification after every DEL finds what the plugin
// left behind, or the step becomes a [Leftover].
func (e PluginExec) AwaitEarlier(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		file, err := e.lock(syscall.LOCK_EX)
		if err == nil && file != nil {
			return file.Close()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if e.onlyHelpersLeft() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a CNI plugin that an earlier process has started is still running after %s (it "+
				"holds %s)", limit, e.Lock)
		case <-ticker.C:
		}
	}
}

// onlyHelpersLeft reports whether none of the processes holding the lock is a plugin. Plugins may leave processes
// behind, such as a daemon that is started on first use. A process that cannot be inspected is treated as a plugin.
func (e PluginExec) onlyHelpersLeft() bool {
	lock, err := os.Stat(e.Lock)
	if err != nil {
		return false
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	seen := false
	for _, process := range processes {
		if filepath.Base(process) == strconv.Itoa(os.Getpid()) {
			continue
		}
		open, isDriver := hasOpen(process, lock)
		if open && (isDriver || isPlugin(process)) {
			return false
		}
		seen = seen || open
	}
	return seen
}

// hasOpen reports whether a process has a file open, and whether the process opened the file itself, as a driver does
// when it runs a plugin in its own process (see [InProcessExec]). A descriptor that the process opened itself has the
// close-on-exec flag; an inherited one does not.
func hasOpen(process string, file os.FileInfo) (open, itself bool) {
	descriptors, err := filepath.Glob(filepath.Join(process, "fd", "*"))
	if err != nil {
		return false, false
	}
	for _, path := range descriptors {
		if found, err := os.Stat(path); err != nil || !os.SameFile(found, file) {
			continue
		}
		open = true
		// The flags are octal; see proc_pid_fdinfo(5). If the process has just exited, the next poll detects this.
		info, err := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(path)))
		_, after, _ := strings.Cut(string(info), "flags:")
		line, _, _ := strings.Cut(after, "\n")
		flags, unknown := strconv.ParseInt(strings.TrimSpace(line), 8, 64)
		itself = itself || err != nil || unknown != nil || flags&syscall.O_CLOEXEC != 0
	}
	return open, itself
}

// isPlugin reports whether a process was started by the driver: such a process leads a process group, but not a
// session, and its children are in its group. Daemons, in contrast, lead a session, which a group leader cannot create.
// If the process has just exited, isPlugin returns true, and the next poll detects the exit.
func isPlugin(process string) bool {
	data, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return true
	}
	// The fields after the name are state, parent, group and session.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	pid := filepath.Base(process)
	return len(fields) < 4 || fields[2] == pid && fields[3] != pid
}

// signalGroup sends a signal to a plugin and all of its children in the same process group. It is not an error if the
// group no longer exists.
func signalGroup(pid int, signal syscall.Signal) error {
	if err := syscall.Kill(-pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// pluginError returns the error that the plugin printed (CNI specification, section 5 "Error"), if any; otherwise, it
// returns err. Any other output is quoted in the error, because some plugins print plain text, or even a result, before
// they fail.
func pluginError(output CallOutput, err error) error {
	var printed types.Error
	if output.ExitCode > 0 && json.Unmarshal(output.Stdout, &printed) == nil && printed.Code != 0 {
		return &printed
	}
	if output.ExitCode > 0 && len(output.Stdout) > 0 {
		return fmt.Errorf("%w; it printed %s", err, sanitize.Shorten(string(bytes.TrimSpace(output.Stdout)), 512))
	}
	return err
}

// ExecPlugin runs a plugin and returns its standard output.
func (e PluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	output, err := e.Call(ctx, path, stdin, environ)
	return output.Stdout, err
}

// FindInPath accepts only a bare file name and searches only the given directories. CNI types come from topologies and
// NetworkAttachmentDefinitions: if slashes were allowed, a type could refer to any program on the host.
func (PluginExec) FindInPath(plugin string, paths []string) (string, error) {
	if err := cnichain.CheckBinaryName(plugin); err != nil {
		return "", fmt.Errorf("CNI type %q %w", plugin, err)
	}
	for _, dir := range paths {
		path := filepath.Join(dir, plugin)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no CNI plugin %q in %v; install it there", plugin, paths)
}

// Decode parses the VERSION result.
func (PluginExec) Decode(document []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(document)
}

// boundedBuffer keeps the first bytes and discards the rest, so that a plugin with endless output neither exhausts
// memory nor blocks.
type boundedBuffer struct {
	kept      bytes.Buffer // not embedded, since its ReadFrom would bypass the limit
	limit     int
	truncated bool
}

// Write implements io.Writer. It always reports that all data was written: after an error, os/exec would stop reading,
// and SIGPIPE would kill the plugin.
func (b *boundedBuffer) Write(data []byte) (int, error) {
	room := b.limit - b.kept.Len()
	if len(data) > room {
		b.truncated = true
		b.kept.Write(data[:max(room, 0)])
		return len(data), nil
	}
	return b.kept.Write(data)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
