// Command without runs a program without the given capabilities, even in a privileged container, where the runtime
// grants all capabilities: `without NET_ADMIN,SYS_TIME /program argument…`. It is for tests.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/capability"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: without CAPABILITY[,CAPABILITY]... PROGRAM [ARGUMENT]...")
		os.Exit(2)
	}
	if err := run(strings.Split(os.Args[1], ","), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "without:", err)
		os.Exit(1)
	}
}

// run removes capabilities from this thread's bounding set, and executes the program on this thread. The bounding set
// limits which capabilities root has after execve(2) (capabilities(7)). Each thread has its own bounding set, so run
// locks the goroutine to the thread. run returns only on failure.
func run(names, command []string) error {
	runtime.LockOSThread()
	for _, name := range names {
		number, err := capability.Number(name)
		if err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
			return fmt.Errorf("cannot drop %s: %w", name, err)
		}
	}
	return fmt.Errorf("cannot run %s: %w", command[0], unix.Exec(command[0], command, os.Environ()))
}
