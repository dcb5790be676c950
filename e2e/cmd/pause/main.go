// Command pause is the only process in a lab cluster's pod sandboxes: it keeps the pod's namespaces alive, reaps
// orphaned processes, and exits on SIGTERM or SIGINT.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects all children that have exited, because there may be one SIGCHLD for several children. The sandbox's own
// container has only this process, but if the pod's containers share a PID namespace, this process becomes the parent
// of orphaned processes.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != syscall.EINTR && (err != nil || pid <= 0) {
			return
		}
	}
}
