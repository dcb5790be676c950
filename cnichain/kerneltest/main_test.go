package kerneltest

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// The main thread must stay in the host's namespace. If a goroutine that enters a pod without ever unlocking its thread
// ran on the main thread, the main thread would stay in the pod. Since the main thread never terminates, the pod's
// namespace would exist until the process exits.
var _ = func() bool { runtime.LockOSThread(); return true }()

// TestMain lets this binary act as three programs: the tests, the CNI plugin that they script, and the driver that they
// kill.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "" || os.Getenv(grandchildVariable) != "":
		syscall.Exit(double()) // bypasses the race detector, which would sleep 1 s
	case os.Getenv(workerVariable) != "":
		os.Exit(work())
	}
	os.Exit(m.Run())
}
