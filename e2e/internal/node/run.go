package node

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run is the main function of process 1. It returns only if the node cannot continue. It must run as process 1, because
// it reaps orphaned processes, and because the kernel kills all processes in the namespace when process 1 exits. An
// error also terminates process 1 and is written to its log.
func Run(runDir string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("this program is process 1 of a lab cluster and cannot be run by hand: use the lab command")
	}
	s, err := Load(runDir)
	if err != nil {
		return err
	}
	// Except for SIGKILL from outside, the kernel delivers only signals for which process 1 has a handler
	// (pid_namespaces(7)).
	go exitOn(syscall.SIGTERM, syscall.SIGINT)
	if s.Lifetime {
		go exitAtEnd(os.NewFile(LifetimeFD, "lifetime"))
	}
	// Watch both before the mounts are created, so that a signal or the owner's exit can terminate process 1 at any
	// time.
	if err := prepare(s); err != nil {
		return err
	}
	sup := newSupervisor(LogDir)
	l, err := listen()
	if err != nil {
		return err
	}
	go sup.reap()
	return sup.serve(l)
}

// prepare sets up the node's mounts, host name and network, in this order: the network setup uses files that exist only
// once the mounts have been created.
func prepare(s Spec) error {
	if err := mountAll(s); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("cannot set the host name %q: %w", s.Hostname, err)
	}
	if err := os.Chdir(s.RunDir); err != nil { // only now: mounts may have covered the path
		return err
	}
	return setupNetwork(s)
}

// exitOn terminates process 1, and therefore the whole node, when it receives any of the signals.
func exitOn(signals ...os.Signal) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, signals...)
	<-ch
	os.Exit(0)
}

// exitAtEnd terminates process 1 when the owner's end of the pipe is closed, regardless of how the owner terminated.
func exitAtEnd(pipe *os.File) {
	_, _ = io.Copy(io.Discard, pipe) // only the end of the pipe matters
	os.Exit(0)
}
