// Package observer checks from outside whether containers have their interfaces. It only queries the kernel: which
// processes exist, and what their network namespaces contain.
//
// Invariant: it does not depend on the driver, so bugs in the driver cannot affect it.
package observer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Environment variables that mark watched containers. Containers without these variables are not watched.
const (
	// Pod is the variable with the container's name for use in findings.
	Pod = "OBSERVED_POD"
	// Interfaces is the variable with the comma-separated names of the interfaces that the container must have from its
	// first instruction to its last. Each interface needs an IPv4 address.
	Interfaces = "OBSERVED_INTERFACES"
)

// interval is the pause between scans.
const interval = 50 * time.Millisecond

// Observer watches the processes below one /proc. It samples their state, so it might miss violations that are shorter
// than the pause between scans. exclusive contains link indexes in the node's own namespace; a macvlan interface in a
// pod refers to its parent by such an index. The lock allows calls to Report while Run is running.
type Observer struct {
	proc      string
	exclusive map[int]string

	mu       sync.Mutex
	seen     map[string]bool
	looks    int
	findings []string
}

// New returns an observer. proc is the path of the node's /proc. exclusive maps indexes of links on the node to the
// names of these links. At most one pod at a time may have an interface on top of each of these links.
func New(proc string, exclusive map[int]string) *Observer {
	return &Observer{proc: proc, exclusive: exclusive, seen: map[string]bool{}}
}

// Run watches processes until ctx is done, and completes any scan in progress. It must be called only once.
func (o *Observer) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		o.inspect()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Report returns the violations, the number of watched processes, and the number of scans.
func (o *Observer) Report() (findings []string, processes, looks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.findings), len(o.seen), o.looks
}

// inspect performs one scan. It checks each violation a second time, because the process may be exiting, or the
// interface may be in the middle of a move. A scan is not atomic: it reads processes and their namespaces sequentially,
// so it might find a link that is being moved in two namespaces, or associate a process with outdated links. Therefore,
// a violation is reported only if two scans agree.
func (o *Observer) inspect() {
	reading := read(o.proc)
	wrong := o.violations(reading)
	for what, still := range wrong {
		if still(read(o.proc)) {
			o.found(what)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks++
	for i := range reading.processes {
		o.seen[reading.processes[i].id] = true
	}
}

func (o *Observer) found(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.findings, what) {
		o.findings = append(o.findings, what)
	}
}

// violations returns the apparent violations in a reading. Each is mapped to a function that reports whether the
// violation still exists in a later reading.
func (o *Observer) violations(now reading) map[string]func(reading) bool {
	wrong := map[string]func(reading) bool{}
	for _, process := range now.processes {
		if len(now.missing(process)) == 0 {
			continue
		}
		wrong[fmt.Sprintf("pod %s: process %s runs without %s", process.pod, process.id,
			strings.Join(now.missing(process), ", "))] = func(later reading) bool {
			return later.has(process) && len(later.missing(process)) > 0
		}
	}
	for index, name := range o.exclusive {
		users := now.users(index)
		if len(users) < 2 {
			continue
		}
		wrong[fmt.Sprintf("%s is used in %d namespaces concurrently", name, len(users))] = func(later reading) bool {
			both := slices.DeleteFunc(later.users(index),
				func(namespace string) bool { return !slices.Contains(users, namespace) })
			return len(both) > 1
		}
	}
	return wrong
}
