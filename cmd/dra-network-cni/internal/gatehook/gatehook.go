// Package gatehook is the OCI hook by which the container runtime refuses containers that name a claim which is not
// attached to their network namespace: see [nodeapi.CheckGate]. It needs nothing but the kernel and the claim's CDI
// spec, so it decides also while every component of the driver is down.
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

// maxState bounds what is read of the container's state: annotations are the user's.
const maxState = 8 << 20

// Main runs the hook with the arguments and the standard input of the process, and ends the process. The runtime reads
// nothing but the exit status: any other than 0 ends the creation of the container (OCI runtime specification,
// "createRuntime Hooks"). runc repeats standard error in its own error, which kubelet shows in an event of the pod.
func Main() {
	if err := Run(os.Args[1:], os.Stdin, "/proc"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run checks the container whose state is read (OCI runtime specification, "State"). The argument is the path of the
// CDI spec; procDir is where the kernel shows processes. Every doubt is an error: a container that waits is created
// again by kubelet, while one that started without its interfaces may be lost to its owner.
func Run(args []string, state io.Reader, procDir string) error {
	if len(args) != 1 {
		return errors.New("cannot check a container; give the path of the CDI spec of its claim as the argument, and " +
			"the state of the container as standard input")
	}
	var container struct {
		ID  string `json:"id"`
		Pid int    `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&container); err != nil {
		return fmt.Errorf("cannot read the state of the container: %w", err)
	}
	// The state has no process before the container is created and after it has ended: then there is no namespace to
	// compare.
	if container.Pid <= 0 {
		return fmt.Errorf("cannot check container %s: its state has no process", container.ID)
	}
	if err := nodeapi.CheckGate(args[0], filepath.Join(procDir, strconv.Itoa(container.Pid), "ns", "net")); err != nil {
		return fmt.Errorf("cannot start container %s: %w", container.ID, err)
	}
	return nil
}
