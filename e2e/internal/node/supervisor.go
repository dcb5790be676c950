package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
)

// Namespaces are the namespaces that are private to each machine. The cgroup and user namespaces are shared with the
// host: limits apply to separate cgroups, and the root user is the host's root user.
const Namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWUTS

// process is a component's command and state.
type process struct {
	argv    []string
	machine bool // process 1 in its own namespaces
	pid     int
	running bool
	result  string        // how the process last exited
	done    chan struct{} // closed when it has exited
}

// supervisor starts and reaps components, and reaps all orphans that process 1 inherits. Only the loop in reap waits
// for children, because two waiters would steal each other's results. Component records are never removed: after a
// component has exited, its command line and result are still available. The lock protects the records; done is closed
// once, under the lock.
type supervisor struct {
	logDir string
	mu     sync.Mutex
	procs  map[string]*process
}

func newSupervisor(logDir string) *supervisor {
	return &supervisor{logDir: logDir, procs: map[string]*process{}}
}

// start starts a component. Without argv, it uses the arguments from the previous start. It returns as soon as the
// program is running; checking the program's health is up to the client.
func (s *supervisor) start(req Request) error {
	name, argv, machine := req.Name, req.Argv, req.Machine
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[name]
	switch {
	case p != nil && p.running:
		return fmt.Errorf("%s is running already (pid %d)", name, p.pid)
	case len(argv) == 0 && p == nil:
		return fmt.Errorf("%s was never started", name)
	case len(argv) == 0:
		argv, machine = p.argv, p.machine
	}
	// Hold the lock until the process is recorded, so that reap does not find a process ID without a record.
	pid, err := s.fork(name, argv, machine)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	s.procs[name] = &process{argv: argv, machine: machine, pid: pid, running: true, done: make(chan struct{})}
	slog.Info("started", "component", name, "pid", pid)
	return nil
}

// fork starts a program and returns its process ID. It does not use os/exec, whose Wait would compete with the loop in
// reap. The component appends to the log directly, so no output is lost if process 1 is busy. The component inherits
// process 1's environment, whose PATH contains the cluster's programs, so that containerd finds its shim.
func (s *supervisor) fork(name string, argv []string, machine bool) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	out, err := os.OpenFile(filepath.Join(s.logDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { _ = out.Close() }() // the component has its own copy
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()              // as above
	attributes := &syscall.SysProcAttr{Setsid: true} // signals to one component do not reach others
	if machine {
		attributes.Cloneflags = Namespaces
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   attributes,
	})
}

// stop sends sig to a component and waits until the component has exited. Processes that it started keep running,
// except for the processes of a machine, which terminate with its process 1.
func (s *supervisor) stop(ctx context.Context, name string, sig syscall.Signal) error {
	s.mu.Lock()
	p := s.procs[name]
	if p == nil || !p.running {
		s.mu.Unlock()
		return fmt.Errorf("%s is not running", name)
	}
	err := syscall.Kill(p.pid, sig)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("cannot send signal %d to %s: %w", sig, name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s (pid %d) has not ended after signal %d: %w", name, p.pid, sig, ctx.Err())
	}
}

// reap collects children that have exited, and never returns. When there are none left, it waits for SIGCHLD before it
// tries again. It does not miss a child that exits just before it waits, because the channel buffers the signal. There
// may be one signal for several children, so each round continues until no exited child is left.
func (s *supervisor) reap() {
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			<-child
		case err == nil:
			s.ended(pid, status)
		}
	}
}

// ended records how a child exited. Most children are not components: they are, for example, pod processes whose shim
// has exited.
func (s *supervisor) ended(pid int, status syscall.WaitStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.procs {
		if p.pid != pid || !p.running {
			continue
		}
		p.running = false
		p.result = fmt.Sprintf("exit status %d", status.ExitStatus())
		if status.Signaled() {
			p.result = "killed by signal " + status.Signal().String()
		}
		close(p.done)
		slog.Info("ended", "component", name, "pid", pid, "result", p.result)
	}
}

// status returns a copy of the state of all components for use in responses.
func (s *supervisor) status() map[string]Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Process, len(s.procs))
	for name, p := range s.procs {
		out[name] = Process{PID: p.pid, Running: p.running, Result: p.result, Argv: p.argv}
	}
	return out
}
