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

// processID names a process for good: a number alone may be used again for another process. A file of state may be
// older than the process that has its number now. Start time and boot tell them apart, as no two processes of one boot
// have the same number and started in the same tick.
type processID struct {
	PID int `json:"pid"`
	// Start is when the process started, in clock ticks since the machine did.
	Start uint64 `json:"start"`
	// Boot is the machine's boot: ticks begin anew with each.
	Boot string `json:"boot"`
}

// bootID is empty where it can't be read, which never equals that of a running machine.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}

// identify reads when the process pid started.
func identify(pid int) (processID, error) {
	start, _, err := readStat(pid)
	return processID{PID: pid, Start: start, Boot: bootID()}, err
}

// readStat returns start time and state from /proc/PID/stat. The name before them may hold anything, so they are
// counted from its closing parenthesis. In proc_pid_stat(5) the state is the third field and the start time the 22nd:
// the first and the 20th behind the name.
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

// alive tells whether the process is there. A zombie is not: for process 1 of a namespace it means that all others
// ended. What can't be read is not there.
func (p processID) alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, status, err := readStat(p.PID)
	return err == nil && start == p.Start && p.Boot == bootID() && status != 'Z' && status != 'X'
}

// kill ends the process and waits until it is gone. It is no error if it was not there. A process that we are the
// parent of counts as gone when it is a zombie.
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
	defer func() { _ = unix.Close(fd) }() // only names the process
	if !p.alive() {                       // asked after the descriptor names the process: now it can't be exchanged
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
