package certificate

import "github.com/go-logr/logr"

// sparing logs the errors of an operation that is retried continually. It logs each error once when it appears, and
// once when it is resolved. Errors are compared by their text, so an error with a changing part, such as a time, is
// logged each time. It is not safe for concurrent use.
type sparing struct {
	log  logr.Logger
	what string
	last string
}

func newSparing(log logr.Logger, what string) *sparing { return &sparing{log: log, what: what} }

// report logs an error if it differs from the previous one, and logs when it is resolved. Callers retry every few
// seconds, and repeated lines would hide everything else in the log.
func (s *sparing) report(err error) {
	switch {
	case err == nil && s.last != "":
		s.log.Info("resolved: " + s.what)
		s.last = ""
	case err != nil && err.Error() != s.last:
		s.log.Error(err, s.what)
		s.last = err.Error()
	}
}
