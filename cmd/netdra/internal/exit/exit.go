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
	Failed  = 1 // a step failed or the run was interrupted; everything is undone
	Refused = 2 // nothing was run: usage, topology, device, an earlier run
	Left    = 3 // something could not be undone
)

// Error is an error with the exit status that it ends the process with. main prints Err, unless it is ErrPrinted, and
// ends with Code.
type Error struct {
	Code int
	Err  error
}

// Error is the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrPrinted is the cause of a failure that the output has explained already.
var ErrPrinted = errors.New("shown already")

// Refusef returns an error for a command that did nothing.
func Refusef(format string, arguments ...any) error {
	return &Error{Code: Refused, Err: fmt.Errorf(format, arguments...)}
}

// NotUndone is an error of something that could not be undone. Errors that are nil are left out.
func NotUndone(errs ...error) error {
	return &Error{Code: Left, Err: errors.Join(errs...)}
}

// Reported is the error of a command that has printed what is wrong.
func Reported() error { return &Error{Code: Failed, Err: ErrPrinted} }

// Cause returns what the kernel says, of an error of packages os, net and net/http; other errors are returned as they
// are. The texts of those packages name system calls, and files and addresses that nobody has asked for.
func Cause(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err
	}
	return err
}
