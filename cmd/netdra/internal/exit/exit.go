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
	Failed  = 1 // a check or a step failed, or the run was interrupted; everything is undone
	Refused = 2 // nothing was done: usage or input error, no answer, or an earlier run
	Left    = 3 // something could not be undone
)

// Error is an error with an exit status. main prints Err, unless it is ErrPrinted, and exits with Code.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrPrinted is the cause for a failure that the output already explains.
var ErrPrinted = errors.New("shown already")

// Refusef returns an error for a command that did nothing.
func Refusef(format string, arguments ...any) error {
	return &Error{Code: Refused, Err: fmt.Errorf(format, arguments...)}
}

// NotUndone returns an error for changes that could not be undone. It ignores nil errors.
func NotUndone(errs ...error) error {
	return &Error{Code: Left, Err: errors.Join(errs...)}
}

// Check returns err. If err is nil and a check has failed, it returns the error for a command that has already printed
// the problem.
func Check(err error, failed bool) error {
	if err == nil && failed {
		return Status(Failed)
	}
	return err
}

// Status returns the error that carries the exit status of a command that has already printed its problems; nil for
// success.
func Status(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code, Err: ErrPrinted}
}

// Cause returns the system error behind an error from package os, net or net/http. It returns other errors unchanged.
// Messages from those packages contain system calls, files and addresses that mean nothing to the user.
func Cause(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err
	}
	return err
}
