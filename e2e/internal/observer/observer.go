// Package observer checks from outside whether containers have their interfaces. It queries only the kernel: the
// existing processes, and the content of their network namespaces.
//
// The rule of this package: it does not depend on the driver, so that no mistake of the driver can affect it.
package observer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Environment variables of the containers that are watched. Others are not.
const (
	// Pod is the name by which findings name the container.
	Pod = "OBSERVED_POD"
	// Interfaces names, separated by commas, the interfaces that the container must have from its first instruction to
	// its last, with an IPv4 address each.
	Interfaces = "OBSERVED_INTERFACES"
)

// interval is the pause between two looks.
const interval = 50 * time.Millisecond

// Observer watches the processes below one /proc. It samples: it may miss violations that are shorter than the pause
// between two readings. exclusive contains indexes of the node's own namespace, by which a macvlan interface in a pod
// names its parent. The lock is for Report, which may be called while Run runs.
type Observer struct {
	proc      string
	exclusive map[int]string

	mu       sync.Mutex
	seen     map[string]bool
	looks    int
	findings []string
}

// New makes an observer. Proc is the /proc of the node. Exclusive are links of the node, by index, with their names: at
// most one pod at a time may have an interface on top of each.
func New(proc string, exclusive map[int]string) *Observer {
	return &Observer{proc: proc, exclusive: exclusive, seen: map[string]bool{}}
}

// Run watches until ctx ends. It finishes the look that it is in. It runs once.
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

// Report returns the violations, the number of watched processes, and the number of readings.
func (o *Observer) Report() (findings []string, processes, looks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.findings), len(o.seen), o.looks
}

// inspect takes one reading. It checks violations a second time: the process may be ending, or the interface may be
// moving. A reading is not atomic: it reads processes and their namespaces one after another, so it may find a link
// that moves in two namespaces, or a process with outdated links. A finding needs two readings that agree.
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

// violations returns what seems wrong, each with a function that tells from a later reading whether it still is.
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
