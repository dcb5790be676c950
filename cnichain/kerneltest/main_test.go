package kerneltest

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// The main thread must stay in the host's namespace: a goroutine that enters a pod and never unlocks its thread would
// take it along, and a main thread can't end, so that the pod's namespace would live as long as the process.
var _ = func() bool { runtime.LockOSThread(); return true }()

// TestMain makes this binary three programs: the tests, the CNI plugin that they script, and the driver that they kill.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "" || os.Getenv(grandchildVariable) != "":
		syscall.Exit(double()) // past the race detector, which would sleep 1 s
	case os.Getenv(workerVariable) != "":
		os.Exit(work())
	}
	os.Exit(m.Run())
}
