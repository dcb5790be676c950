package exit

import (
	"errors"
	"fmt"
	"net/url"
	"syscall"
)

// Exit statuses. They are documented in "netdra help exit-codes".
const (
	OK      = 0
	Failed  = 1 // a check or a step failed, or the run was interrupted; everything has been undone
	Refused = 2 // nothing was done because of a usage or input error, a missing answer, or an earlier run
	Left    = 3 // something could not be undone
)

// Error is an error with an exit status. main exits with Code, and prints Err unless it is ErrPrinted.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrPrinted is the cause of a failure that the output already explains.
var ErrPrinted = errors.New("shown already")

// Refusef returns the error for a command that has not done anything.
func Refusef(format string, arguments ...any) error {
	return &Error{Code: Refused, Err: fmt.Errorf(format, arguments...)}
}

// NotUndone returns the error for changes that could not be undone. It ignores nil errors.
func NotUndone(errs ...error) error {
	return &Error{Code: Left, Err: errors.Join(errs...)}
}

// Check returns err. If err is nil but a check failed, it returns the error for a command that has already printed the
// problem.
func Check(err error, failed bool) error {
	if err == nil && failed {
		return Status(Failed)
	}
	return err
}

// Status returns an error with the given exit status for a command that has already printed its problems, or nil if the
// status is OK.
func Status(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code, Err: ErrPrinted}
}

// Cause returns the underlying system error of an error from package os, net or net/http. It returns other errors
// unchanged. Messages from these packages contain system calls, files and addresses that mean nothing to the user.
func Cause(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err
	}
	return err
}
