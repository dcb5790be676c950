// Package observer watches from outside whether containers have the interfaces that they were promised. It asks the
// kernel only: which processes there are, and what is in their network namespaces.
//
// The rule of this package: it knows nothing of the driver, so that no mistake of the driver can hide from it.
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
	// Interfaces names, separated by commas, what the container must have from its first instruction to its last, with
	// an IPv4 address each.
	Interfaces = "OBSERVED_INTERFACES"
)

// interval is the pause between two looks.
const interval = 50 * time.Millisecond

// Observer watches the processes below one /proc. It samples: what was wrong for less than the pause between two looks
// may be missed. exclusive has indexes of the node's own namespace, by which a macvlan interface in a pod names its
// parent. The lock is for Report, which may be called while Run runs.
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

// Report says what was wrong, how many processes were watched, and how often was looked.
func (o *Observer) Report() (findings []string, processes, looks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.findings), len(o.seen), o.looks
}

// inspect takes one reading. What seems wrong is looked at once more: the process may be ending, or the interface
// moving on. One reading is no moment: processes are looked at one after another, and their namespaces with them, so a
// link that moves may be seen in two, or a process with the links of the moment before. A finding needs two readings
// that agree.
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
		wrong[fmt.Sprintf("%s is used in %d namespaces at once", name, len(users))] = func(later reading) bool {
			both := slices.DeleteFunc(later.users(index),
				func(namespace string) bool { return !slices.Contains(users, namespace) })
			return len(both) > 1
		}
	}
	return wrong
}
