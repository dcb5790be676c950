package certificate

import "github.com/go-logr/logr"

// sparing logs the errors of something that is tried again and again: each when it appears, and that it is over. Errors
// are compared by their text: one with a changing part, such as a time, would be logged at each look. It is used by one
// goroutine.
type sparing struct {
	log  logr.Logger
	what string
	last string
}

func newSparing(log logr.Logger, what string) *sparing { return &sparing{log: log, what: what} }

// report logs an error when it is another one than before, and its end. Whoever calls tries again every few seconds,
// and a log of equal lines hides everything else.
func (s *sparing) report(err error) {
	switch {
	case err == nil && s.last != "":
		s.log.Info("over: " + s.what)
		s.last = ""
	case err != nil && err.Error() != s.last:
		s.log.Error(err, s.what)
		s.last = err.Error()
	}
}
