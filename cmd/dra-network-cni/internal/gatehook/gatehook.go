// Package gatehook is the OCI hook that makes the container runtime reject a container whose claim is not attached to
// the container's network namespace; see [nodeapi.CheckGate]. The hook depends only on the kernel and the claim's CDI
// spec, so it works even if all driver components are down.
package gatehook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// maxState limits the size of the container state, which contains annotations that users control.
const maxState = 8 << 20

// Main runs the hook with the process's arguments and standard input, and exits. The runtime only looks at the exit
// status: a nonzero status aborts container creation (OCI runtime specification, "createRuntime Hooks"). runc includes
// the hook's standard error in its own error, which the kubelet reports in an event for the pod.
func Main() {
	if err := Run(os.Args[1:], os.Stdin, "/proc"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run reads a container's state (OCI runtime specification, "State") and checks the container. The only argument is the
// path to the CDI spec; procDir is the directory that lists the processes. When in doubt, Run returns an error: the
// kubelet retries a rejected container, whereas a container that starts without its interfaces may never recover.
func Run(args []string, state io.Reader, procDir string) error {
	if len(args) != 1 {
		return errors.New("cannot check a container; pass the path of the claim's CDI spec as the argument, and the " +
			"state of the container on standard input")
	}
	var container struct {
		ID  string `json:"id"`
		Pid int    `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&container); err != nil {
		return fmt.Errorf("cannot read the state of the container: %w", err)
	}
	// Before a container is created and after it has exited, its state does not include a process, so there is no
	// namespace to compare.
	if container.Pid <= 0 {
		return fmt.Errorf("cannot check container %s: its state contains no process", container.ID)
	}
	if err := nodeapi.CheckGate(args[0], filepath.Join(procDir, strconv.Itoa(container.Pid), "ns", "net")); err != nil {
		return fmt.Errorf("cannot start container %s: %w", container.ID, err)
	}
	return nil
}
