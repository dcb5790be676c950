package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/exec"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

// Answer is the output from a command on a node.
type Answer struct {
	Stdout []byte
	Stderr string
	// Code is the exit status; see package exit.
	Code int
}

// mostBytes limits the size of a node's output.
const mostBytes = 256 << 20

// Run runs netdra with arguments in the driver's pod on a node. It returns an error if the command could not be run.
// Arguments are passed as a list and never through a shell. Exit statuses up to [exit.Left] are from netdra; higher
// ones are from components that could not start it, such as 126 and 127 from the runtime.
func (c *Cluster) Run(ctx context.Context, node string, arguments ...string) (Answer, error) {
	pods, err := c.driverPods(ctx, node)
	if err != nil {
		return Answer{}, err
	}
	if len(pods) == 0 {
		return Answer{}, fmt.Errorf("cannot query node %s: no driver pod runs there; check with \"kubectl -n %s "+
			"get pods -o wide\", or name the driver's namespace with --driver-namespace", node, c.DriverNamespace)
	}
	if err := c.whyNotRunning(&pods[0]); err != nil {
		return Answer{}, err
	}
	return c.runIn(ctx, &pods[0], arguments)
}

// runIn runs netdra in the driver's pod. The output is limited, since a compromised node may send endlessly.
func (c *Cluster) runIn(ctx context.Context, pod *corev1.Pod, arguments []string) (Answer, error) {
	stdout, stderr := &limited{}, &limited{}
	err := c.Stream(ctx, pod, append([]string{program}, arguments...), stdout, stderr)
	if err != nil && ctx.Err() != nil { // the stream may still write to the buffers
		return Answer{}, fmt.Errorf("cannot run netdra in pod %s/%s of node %s: %w", pod.Namespace, pod.Name,
			pod.Spec.NodeName, context.Cause(ctx))
	}
	answer := Answer{Stdout: stdout.Bytes(), Stderr: strings.TrimRight(stderr.String(), "\n")}
	if stdout.full || stderr.full {
		return Answer{}, fmt.Errorf("cannot read the answer of node %s: it exceeds %d MiB", pod.Spec.NodeName,
			mostBytes>>20)
	}
	if status := (exec.CodeExitError{}); errors.As(err, &status) && status.Code <= exit.Left {
		answer.Code = status.Code
		return answer, nil
	}
	if err != nil && strings.Contains(err.Error(), `"`+program+`"`) {
		return Answer{},
			fmt.Errorf("cannot run netdra in pod %s/%s of node %s: %w; if its image has no %s, the driver "+
				"is too old: upgrade it, or run netdra on the node", pod.Namespace, pod.Name,
				pod.Spec.NodeName,
				err, program)
	}
	if err != nil {
		return Answer{}, c.denied(fmt.Sprintf("run netdra in pod %s/%s of node %s", pod.Namespace, pod.Name,
			pod.Spec.NodeName), err)
	}
	return answer, nil
}

// limited keeps written data up to a limit.
type limited struct {
	bytes.Buffer
	full bool
}

// Write implements io.Writer. It never fails, so that the command on the node ends normally: an error would break the
// stream and interrupt the command.
func (l *limited) Write(data []byte) (int, error) {
	if l.Len()+len(data) > mostBytes {
		l.full = true
		return len(data), nil
	}
	return l.Buffer.Write(data)
}
