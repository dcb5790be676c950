package discovery

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// each calls read for every number below n. It uses as many goroutines as there are CPUs, since most of the time is
// spent in system calls. Every goroutine has its own sysfs, whose problems are added to s at the end. each makes all
// calls even if some fail, and returns the error of the call with the lowest number.
func (s *sysfs) each(n int, read func(worker *sysfs, i int) error) error {
	errs := make([]error, n)
	readers := make([]sysfs, min(n, runtime.GOMAXPROCS(0)))
	var next atomic.Int64
	var running sync.WaitGroup
	for reader := range readers {
		worker := &readers[reader]
		worker.fsys = s.fsys
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = read(worker, i)
			}
		})
	}
	running.Wait()
	for i := range readers {
		s.problems = append(s.problems, readers[i].problems...)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
