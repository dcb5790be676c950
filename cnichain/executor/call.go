package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Call is a completed CNI call.
type Call struct {
	Time       time.Time
	Duration   time.Duration
	Claim      cnichain.Claim
	SandboxID  string
	Pod        string
	Step       string
	Instance   int
	Command    string
	Plugin     string
	CNIVersion string
	Env        []string
	Stdin      json.RawMessage
	Output     CallOutput
	Err        error
}

// Recorder receives every CNI call after it completes. Implementations are safe for concurrent use. A recorder must
// never cause a chain to fail: calls that it cannot write are lost. A call's Stdin includes any secrets in the
// configuration, so recorders must redact them.
type Recorder interface {
	Record(Call)
}

// discard records nothing.
type discard struct{}

func (discard) Record(Call) {}

// callPlan describes a CNI call before it is made.
type callPlan struct {
	command string
	path    string          // path to the program; empty for the step's plugin
	netns   string          // empty if there is none
	stdin   json.RawMessage // nil for calls after ADD, which use the recorded stdin
}

// call makes one CNI call within the step's time limit, and logs it.
//
// The time spent waiting for the physical function counts towards the deadline of ctx, but not towards the step's
// limit, because earlier calls must not reduce the time available to a plugin. The returned output and error do not
// contain secrets.
func (e *Executor) call(
	ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan,
) (CallOutput, error) {
	if record.Step.Device != nil && record.Step.Device.PF != "" {
		release, err := e.byPF.Acquire(ctx, record.Step.Device.PF)
		if err != nil {
			return CallOutput{}, fmt.Errorf("other chains on virtual functions of %s take too long: %w",
				record.Step.Device.PF, err)
		}
		defer release()
	}
	if ctx.Err() != nil {
		return CallOutput{}, fmt.Errorf("%s was not called: %w", record.Step.Type, context.Cause(ctx))
	}
	ctx, cancel := e.callContext(ctx)
	defer cancel()
	if plan.path == "" {
		plan.path = e.binary(&record.Step)
	}
	if plan.stdin == nil {
		plan.stdin = laterStdin(record)
	}
	environ := e.environ(attachment, record, plan)
	start := e.Clock.Now()
	output, err := e.Exec.Call(ctx, plan.path, plan.stdin, environ)
	hidden := secretsOf(plan.stdin)
	err = hidden.error(err)
	e.Log.Record(Call{
		Time: start, Duration: e.Clock.Since(start), Claim: record.Claim, SandboxID: attachment.SandboxID,
		Pod:  attachment.Pod.String(),
		Step: record.Step.Name, Instance: record.Step.Instance, Command: plan.command, Plugin: plan.path,
		CNIVersion: record.Step.CNIVersion,
		Env:        environ, Stdin: plan.stdin, Output: hidden.output(output), Err: err,
	})
	if err == nil && output.Truncated && plan.command == commandAdd { // only the output of ADD is parsed
		err = fmt.Errorf("%s printed more than %d bytes", record.Step.Type, maxOutput)
	}
	return output, err
}

// callContext returns a context with the time limit for a call. When ctx ends, even at its deadline, the returned
// context is canceled rather than timed out. A plugin that is called late in an attempt is therefore not treated as
// hung and is allowed to finish (see [PluginExec]).
func (e *Executor) callContext(ctx context.Context) (called context.Context, release func()) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.StepTimeout)
	called, interrupt := context.WithCancelCause(limited)
	stop := context.AfterFunc(ctx, func() { interrupt(context.Cause(ctx)) })
	return called, func() { stop(); interrupt(nil); cancel() }
}

// environ returns the complete environment for a plugin (CNI specification, section 2 "Parameters"). The only variable
// it passes through from the driver is PATH: some plugins are scripts, and others run host programs such as iptables.
func (e *Executor) environ(attachment *Attachment, record *StepRecord, plan callPlan) []string {
	environ := []string{
		"CNI_COMMAND=" + plan.command,
		"CNI_PATH=" + strings.Join(e.Dirs, string(os.PathListSeparator)),
		"PATH=" + os.Getenv("PATH"),
	}
	if plan.command == commandStatus { // the call refers to a network, not a container
		return environ
	}
	// Without IgnoreUnknown, a plugin rejects unknown arguments (types.LoadArgs in the CNI library), and few plugins
	// accept all of the Kubernetes arguments.
	args := []string{
		"IgnoreUnknown=true",
		"K8S_POD_NAMESPACE=" + attachment.Pod.Namespace,
		"K8S_POD_NAME=" + attachment.Pod.Name,
		"K8S_POD_INFRA_CONTAINER_ID=" + attachment.SandboxID,
		"K8S_POD_UID=" + attachment.Pod.UID,
	}
	return append(environ,
		"CNI_CONTAINERID="+attachment.SandboxID,
		"CNI_NETNS="+plan.netns,
		"CNI_IFNAME="+record.IfName,
		"CNI_ARGS="+strings.Join(args, ";"),
	)
}

// perPF limits the concurrent calls for virtual functions on the same physical function, whose firmware processes
// requests sequentially anyway.
const perPF = 2

// callAdd calls ADD. If the plugin returns the error "try again later" (CNI code 11), callAdd retries after 200, 400
// and 800 ms. The result is stored in the CNI version of the step's configuration, since it is passed to DEL as
// prevResult.
func (e *Executor) callAdd(
	ctx context.Context, attachment *Attachment, record *StepRecord,
) (*types100.Result, error) {
	for attempt := 0; ; attempt++ {
		output, err := e.call(ctx, attachment, record, callPlan{
			command: commandAdd, netns: attachment.Pin, stdin: record.Stdin,
		})
		var plugin *types.Error
		if errors.As(err, &plugin) && plugin.Code == types.ErrTryAgainLater && attempt < 3 {
			select {
			case <-ctx.Done():
				return nil, err
			case <-e.Clock.After(200 * time.Millisecond << attempt):
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		result, err := parseResult(output.Stdout, record.Step.CNIVersion)
		if err != nil {
			return nil, secretsOf(record.Stdin).error(fmt.Errorf("%s: %w", record.Step.Type, err))
		}
		record.Result, err = resultAs(result, record.Step.CNIVersion)
		return result, err
	}
}
