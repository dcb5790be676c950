// Command pause is the only process of the lab's pod sandboxes: it keeps the pod's namespaces open, reaps orphaned
// processes, and exits on SIGTERM or SIGINT.
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

// reap collects all children that have exited, because several children may share one SIGCHLD. The sandbox's own
// container has only this process, but if the containers of the pod share their process namespace, this process becomes
// the parent of orphaned processes.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != syscall.EINTR && (err != nil || pid <= 0) {
			return
		}
	}
}
