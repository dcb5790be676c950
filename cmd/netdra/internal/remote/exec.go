package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/exec"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Answer is the output of a command that was run on a node.
type Answer struct {
	Stdout []byte
	Stderr string
	// Code is the exit status; see package exit.
	Code int
}

// mostBytes is the maximum size of a node's output.
const mostBytes = 256 << 20

// Run runs netdra with the given arguments in the driver's pod on a node. It returns an error if the command could not
// be run. Arguments are passed as a list, never through a shell. Exit statuses up to [exit.Left] come from netdra.
// Higher ones, such as 126 and 127 from the runtime, come from components that failed to start netdra.
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

// runIn runs netdra in a driver pod. The size of the output is limited, because a compromised node might send data
// endlessly.
func (c *Cluster) runIn(ctx context.Context, pod *corev1.Pod, arguments []string) (Answer, error) {
	stdout, stderr := &limited{}, &limited{}
	action := fmt.Sprintf("run netdra in pod %s/%s of node %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
	err := c.Stream(ctx, pod, append([]string{program}, arguments...), stdout, stderr)
	if err != nil && ctx.Err() != nil { // the stream may still be writing to the buffers
		return Answer{}, fmt.Errorf("cannot %s: %w", action, context.Cause(ctx))
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
		return Answer{}, fmt.Errorf("cannot %s: %w; if its image has no %s, the driver is too old: upgrade it, or run "+
			"netdra on the node", action, err, program)
	}
	if err != nil {
		return Answer{}, c.denied(action, err)
	}
	return answer, nil
}

// limited is a buffer that stores data up to a limit.
type limited struct {
	bytes.Buffer
	full bool
}

// Write implements io.Writer. It never fails, because an error would break the stream and interrupt the command, which
// must be allowed to finish normally.
func (l *limited) Write(data []byte) (int, error) {
	if l.Len()+len(data) > mostBytes {
		l.full = true
		return len(data), nil
	}
	return l.Buffer.Write(data)
}

// Relay runs command lines on a node, one after another, and relays their output. The error contains the highest exit
// status of all commands. The output is sanitized, because an attacker on a node must not be able to control an
// administrator's terminal.
func (c *Cluster) Relay(ctx context.Context, streams printer.Streams, node string, lines ...[]string) error {
	worst := exit.OK
	for _, line := range lines {
		answer, err := c.Run(ctx, node, line...)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(streams.Out, printer.Sanitize(string(answer.Stdout), false)); err != nil {
			return err
		}
		if answer.Stderr != "" {
			printer.New(streams.Err).Printf("%s", answer.Stderr)
		}
		worst = max(worst, answer.Code)
	}
	return exit.Status(worst)
}

// Decode runs a command line with JSON output and decodes the output. It accepts exit status 1, and ignores unknown
// fields, which newer drivers may add. Higher exit statuses mean that there is no output to decode.
func (c *Cluster) Decode(ctx context.Context, node string, target any, line ...string) error {
	answer, err := c.Run(ctx, node, line...)
	if err != nil {
		return err
	}
	if answer.Code > exit.Failed {
		return fmt.Errorf("cannot query node %s: %s", node, printer.Sanitize(answer.Stderr, false))
	}
	if err := json.Unmarshal(answer.Stdout, target); err != nil {
		return fmt.Errorf("cannot read the answer of node %s: %w; if the version of its driver differs from netdra, "+
			"run netdra on the node", node, err)
	}
	return nil
}

const (
	// concurrency is the number of nodes queried at the same time.
	concurrency = 8
	// patience is the time limit per node. It prevents a hanging node from blocking the answers of the other nodes.
	patience = 5 * time.Minute
)

// errSlow is the error for a node that does not answer within the time limit.
var errSlow = errors.New("it takes too long to answer; query it separately with --node")

// Each calls query for every node that has a driver pod and returns the answers in node order. Several calls run
// concurrently. If a node is unreachable, for example because its driver pod is not running, its answer is an error.
// Each call has a context with its own deadline, so a hanging node blocks only one of the concurrent calls.
func Each[T any](ctx context.Context, c *Cluster, query func(ctx context.Context, node string) (T, error)) ([]Of[T],
	error) {
	pods, err := c.driverPods(ctx, "")
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("cannot find a driver pod in namespace %s; name another namespace with "+
			"--driver-namespace", c.DriverNamespace)
	}
	answers := make([]Of[T], len(pods))
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i := range pods {
		group.Go(func() error {
			node := nodeOf(&pods[i])
			if err := c.whyNotRunning(&pods[i]); err != nil {
				answers[i] = Of[T]{Node: node, Err: err}
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(c.Patience, patience), errSlow)
			defer cancel()
			answer, err := query(ctx, node)
			if err != nil && errors.Is(context.Cause(ctx), errSlow) {
				err = fmt.Errorf("cannot query node %s: %w", node, errSlow)
			}
			answers[i] = Of[T]{Node: node, Answer: answer, Err: err}
			return nil
		})
	}
	_ = group.Wait() // the functions never return errors
	return answers, nil
}

// All runs a command line on every node that has a driver pod and decodes the JSON output; see Each.
func All[T any](ctx context.Context, c *Cluster, line ...string) ([]Of[T], error) {
	return Each(ctx, c, func(ctx context.Context, node string) (answer T, err error) {
		err = c.Decode(ctx, node, &answer, line...)
		return answer, err
	})
}

// Of is the answer from a node.
type Of[T any] struct {
	Node   string
	Answer T
	Err    error
}
