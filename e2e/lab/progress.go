package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints each step with the time elapsed since the start. It may be used concurrently.
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
	// Progress messages are only informational, so an error while printing them must not interrupt the work.
	_, _ = fmt.Fprintf(p.out, "%7.2f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write prints a program's output unchanged. Steps may appear between its lines.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}
