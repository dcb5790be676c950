// Package process finds processes in /proc. A machine's /proc also lists the processes on its nodes, under different
// process IDs.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/procfs"
)

// Match reports whether a process meets a condition. A process that exits during the check does not match.
type Match func(procfs.Proc) bool

// Find returns the processes that all matches accept, in order of their IDs. A match that cannot read a process does
// not accept it, so without root privileges, Find omits other users' processes and does not return an error.
func Find(matches ...Match) ([]procfs.Proc, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(candidate procfs.Proc) bool {
		return slices.ContainsFunc(matches, func(holds Match) bool { return !holds(candidate) })
	})
	slices.SortFunc(found, func(a, b procfs.Proc) int { return a.PID - b.PID })
	return found, nil
}

// One returns the only process that all matches accept. The error is fs.ErrNotExist if there is no such process. It is
// also an error if there are several.
func One(matches ...Match) (procfs.Proc, error) {
	found, err := Find(matches...)
	switch {
	case err != nil:
		return procfs.Proc{}, err
	case len(found) == 0:
		return procfs.Proc{}, fmt.Errorf("cannot find the process: %w", fs.ErrNotExist)
	case len(found) > 1:
		return procfs.Proc{}, fmt.Errorf("cannot choose between %d processes", len(found))
	}
	return found[0], nil
}

// PIDs returns the IDs of the processes that all matches accept.
func PIDs(matches ...Match) ([]int, error) {
	found, err := Find(matches...)
	pids := make([]int, 0, len(found))
	for _, process := range found {
		pids = append(pids, process.PID)
	}
	return pids, err
}

// Runs matches processes that execute a program. It compares the target of /proc/PID/exe, which a program cannot
// change, instead of the name in the arguments.
func Runs(program string) Match {
	return func(candidate procfs.Proc) bool {
		path, err := candidate.Executable()
		return err == nil && filepath.Base(path) == program
	}
}

// HasArgument matches processes with at least one argument that a function accepts. The first argument is the name with
// which the program was called.
func HasArgument(accept func(string) bool) Match {
	return func(candidate procfs.Proc) bool {
		arguments, err := candidate.CmdLine()
		return err == nil && slices.ContainsFunc(arguments, accept)
	}
}

// HasVariable matches processes that were started with the given value of an environment variable. It reads the
// program's initial environment (/proc/PID/environ), which does not include later changes.
func HasVariable(name, value string) Match {
	return func(candidate procfs.Proc) bool {
		environment, err := candidate.Environ()
		return err == nil && slices.Contains(environment, name+"="+value)
	}
}

// InNamespace matches processes in a namespace, given as the target of a link such as /proc/1/ns/net, for example
// "net:[4026531840]".
func InNamespace(kind, namespace string) Match {
	return func(candidate procfs.Proc) bool {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", candidate.PID, kind))
		return err == nil && link == namespace
	}
}

// OutsideNamespace matches processes in any other namespace of the same kind.
func OutsideNamespace(kind, namespace string) Match {
	return func(candidate procfs.Proc) bool {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", candidate.PID, kind))
		return err == nil && link != namespace
	}
}

// Status returns a process's status, including its memory usage in bytes. Unlike [procfs.Proc.NewStatus], it returns an
// error if the kernel does not report the memory usage because the process is exiting.
func Status(process procfs.Proc) (procfs.ProcStatus, error) {
	status, err := process.NewStatus()
	if err == nil && status.VmRSS == 0 {
		err = errors.New("it has no memory: it is ending")
	}
	if err != nil {
		return status, fmt.Errorf("cannot read the status of process %d: %w", process.PID, err)
	}
	return status, nil
}
