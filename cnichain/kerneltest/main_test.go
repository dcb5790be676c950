package kerneltest

import (
	"os"
	"syscall"
	"testing"
)

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
