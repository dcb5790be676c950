package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints steps with the time since the start. It may be used by several goroutines.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out, start: time.Now()}
}

// step prints one line.
func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Progress is for people only: that it cannot be printed must not stop the work.
	_, _ = fmt.Fprintf(p.out, "%7.2f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write prints what a program says as it is. It makes progress an io.Writer for the output of programs, between whose
// lines steps may come.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}
