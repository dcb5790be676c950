package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processID uniquely identifies a process. This is necessary because the kernel may reuse a process ID, and a state
// file may be older than the process that now has the ID. The start time and the boot ID distinguish the two, since in
// one boot, no two processes with the same ID start in the same tick.
type processID struct {
	PID int `json:"pid"`
	// Start is the process's start time, in clock ticks since the machine booted.
	Start uint64 `json:"start"`
	// Boot is the machine's boot ID. It is necessary because ticks restart at zero on each boot.
	Boot string `json:"boot"`
}

// bootID returns the machine's boot ID. If the file cannot be read, it returns "", which never matches a running
// machine's boot ID.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}

// identify returns the identity of the process pid.
func identify(pid int) (processID, error) {
	start, _, err := readStat(pid)
	return processID{PID: pid, Start: start, Boot: bootID()}, err
}

// readStat returns a process's start time and state from /proc/PID/stat. The process name may contain any character, so
// the fields are counted from its closing parenthesis. According to proc_pid_stat(5), the state is the third field and
// the start time is the 22nd field, which are the first and the 20th fields after the name.
func readStat(pid int) (start uint64, status byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}

// alive reports whether the process exists. A zombie is not considered alive: if a namespace's process 1 is a zombie,
// all other processes have exited. The result is false if the process's state cannot be read.
func (p processID) alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, status, err := readStat(p.PID)
	return err == nil && start == p.Start && p.Boot == bootID() && status != 'Z' && status != 'X'
}

// kill kills the process and waits until it no longer exists. It is not an error if the process does not exist. A
// zombie child of the current process is treated as no longer existing.
func (p processID) kill(ctx context.Context) error {
	if p.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open process %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }() // the descriptor is used only to identify the process
	if !p.alive() {                       // once open, the descriptor cannot refer to another process
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot kill process %d: %w", p.PID, err)
	}
	return poll(ctx, 5*time.Millisecond, func(context.Context) error {
		if p.alive() {
			return fmt.Errorf("process %d is still there", p.PID)
		}
		return nil
	})
}
