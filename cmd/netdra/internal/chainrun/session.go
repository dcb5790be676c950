package chainrun

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// session is the state of one run. prepare fills it in without changing the machine. After that, begin, attach and
// detach must be called in this order.
type session struct {
	*RunOptions
	deps     *osdeps.Deps
	streams  printer.Streams
	out      *printer.Printer
	journal  *RunJournal
	executor *executor.Executor
	narrator *Narrator

	node string
	// namespace is the path of the namespace where the chain is attached. temporary is true if the run created the
	// namespace.
	namespace string
	temporary bool
	// held is a path to the namespace that remains valid after the namespace's name is removed.
	held       string
	attachment *executor.Attachment
	record     RunRecord
	before     view.View // state of the namespace before the run
	result     RunResult
}

// RunResult is the result of a run, for output as JSON or YAML. Scripts depend on the field names.
type RunResult struct {
	Run      string `json:"run"`
	Topology string `json:"topology"`
	// Outcome is "undone", "kept", "failed" (and undone), or "left" (something could not be undone).
	Outcome   string `json:"outcome"`
	Error     string `json:"error,omitempty"`
	Namespace string `json:"namespace"`
	// Attached describes the namespace while the chain was attached.
	Attached *view.View `json:"attached,omitempty"`
	// Differences describes how the current state differs from the state before the run.
	Differences []string `json:"differences,omitempty"`
	// Undo is the command for undoing the rest of the run.
	Undo string `json:"undo,omitempty"`
}

// Possible outcomes of a run.
const (
	OutcomeUndone = "undone"
	OutcomeKept   = "kept"
	OutcomeFailed = "failed"
	outcomeLeft   = "left"
)

// runAndUndo runs the chain and then undoes it, even after a failure or a signal.
func (s *session) runAndUndo(ctx context.Context) error {
	release, err := s.begin()
	if err != nil {
		return err
	}
	defer release()
	failure := s.attach(ctx)
	if failure == nil && s.Keep && ctx.Err() == nil {
		return s.leaveAttached()
	}
	return s.finish(failure, s.detach(ctx))
}

// begin records the run before it creates the namespace, so that the run can be found if the process is killed. It
// keeps the namespace open independently of its name; otherwise, a plugin that removes the name would destroy the
// namespace before the final comparison. If begin returns an error, everything has been removed, and the run is not in
// the journal.
func (s *session) begin() (release func(), err error) {
	id := s.attachment.SandboxID
	if s.record.Before, err = s.deps.Inspect(""); err != nil {
		return nil, err
	}
	if err := s.journal.Runs.Put(id, s.record); err != nil {
		return nil, err
	}
	if s.temporary {
		err = s.deps.MakeNamespace(s.namespace)
	}
	if err == nil {
		s.held, release, err = s.deps.Hold(s.namespace)
	}
	if err == nil {
		if s.before, err = s.deps.Inspect(s.held); err != nil {
			release()
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.deps.Host.Unpin(s.attachment.Pin), s.journal.Runs.Delete(id))
	}
	kind := s.namespace
	if s.temporary {
		kind = filepath.Base(s.namespace) + ", created for this run"
	}
	s.out.Printf("Topology %s, network namespace %s\n", s.record.Topology, kind)
	return release, nil
}

// attach attaches the chain and prints the state of the namespace. After an error, the caller must detach the chain.
func (s *session) attach(ctx context.Context) error {
	s.narrator.watch(s.attachment)
	if err := s.executor.Add(ctx, s.attachment, s.namespace, s.node); err != nil {
		return s.cause(ctx, err)
	}
	attached, err := s.deps.Inspect(s.held)
	if err != nil {
		return err
	}
	s.result.Attached = &attached
	if s.Form == printer.FormText {
		PrintView(s.out, attached)
		s.out.Printf("")
	}
	if !s.Check {
		return nil
	}
	if err := s.executor.Check(ctx, s.attachment); err != nil {
		return err
	}
	s.out.Good("CHECK: every plugin that supports it succeeded.")
	return nil
}

// cause returns the cause of a failure without the error from the rollback, because detach undoes the chain again. If
// the kernel lacks a feature, cause adds a hint.
func (s *session) cause(ctx context.Context, err error) error {
	if both := (&executor.UndoError{}); errors.As(err, &both) {
		err = both.Cause
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	if hint := executor.KernelHint(err, s.node); hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}

func (s *session) leaveAttached() error {
	s.result.Outcome, s.result.Undo = OutcomeKept, s.journal.undoHint()
	s.out.Good("Attached and kept. Inspect it with \"ip netns exec %s ip addr\"; undo it with \"%s\".",
		filepath.Base(s.attachment.Pin), s.journal.undoHint())
	return s.print()
}

// detach undoes the chain and verifies the result. If something could not be undone, it returns an error, and the run
// stays in the journal. If there are merely differences, it deletes the run: the user must inspect them, and undoing
// the run again would not help.
func (s *session) detach(ctx context.Context) error {
	err := undoAttachment(ctx, s.executor, s.out, s.attachment)
	if err == nil {
		s.result.Differences, err = s.verifyRestored()
	}
	if err != nil {
		return err
	}
	return s.journal.Runs.Delete(s.attachment.SandboxID)
}

// UndoAttempts is the number of DEL attempts. It is large enough for the executor to move a device back to the host
// itself if the plugin fails to do so.
const UndoAttempts = 4

// undoAttachment undoes an attachment even if ctx is done, because an interrupted run must not leave its chain
// attached. After the first failure, it keeps retrying for at most the time limit of one call.
//
// The time limit of an attempt allows every step to use its full timeout, plus one more timeout. The pauses between
// attempts start at 200 ms and double each time, because the cause of a failure, such as a process that is still using
// the device, often disappears quickly.
func undoAttachment(ctx context.Context, executor *executor.Executor, out *printer.Printer,
	attachment *executor.Attachment) error {
	start := executor.Clock.Now()
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx),
			time.Duration(len(attachment.Steps)+1)*executor.StepTimeout)
		err := executor.Del(limited, attachment)
		cancel()
		if err == nil || attempt == UndoAttempts || executor.Clock.Since(start) > executor.StepTimeout {
			return err
		}
		out.Warn("not undone yet, retrying: %v", err)
		<-executor.Clock.After(100 * time.Millisecond << attempt)
	}
}

// The kernel finishes some removals after acknowledging them, so verification waits for up to a second.
const (
	proofAttempts = 20
	proofPause    = 50 * time.Millisecond
)

// verifyRestored compares the current state of the namespace and the machine with their initial state and returns the
// differences.
func (s *session) verifyRestored() ([]string, error) {
	for attempt := 1; ; attempt++ {
		inside, err := s.deps.Inspect(s.held)
		if err != nil {
			return nil, err
		}
		differences, err := machineDifferences(s.deps, s.record.Before)
		if err != nil {
			return nil, err
		}
		for _, difference := range view.Differences(s.before, inside) {
			differences = append(differences, "in the namespace: "+difference)
		}
		if len(differences) == 0 || attempt == proofAttempts {
			return differences, nil
		}
		<-s.deps.Clock.After(proofPause)
	}
}

func machineDifferences(deps *osdeps.Deps, before view.View) ([]string, error) {
	now, err := deps.Inspect("")
	if err != nil {
		return nil, err
	}
	var differences []string
	for _, difference := range view.Differences(before, now) {
		differences = append(differences, "on this machine: "+difference)
	}
	return differences, nil
}

// finish prints the outcome of a run and returns the error that determines the exit status. remains takes precedence
// over failure, because scripts use the exit status to determine whether the machine is clean.
func (s *session) finish(failure, remains error) error {
	s.result.Outcome = OutcomeUndone
	err := failure
	switch {
	case remains != nil:
		s.result.Outcome, s.result.Undo = outcomeLeft, s.journal.undoHint()
		err = exit.NotUndone(failure, fmt.Errorf("the run could not be undone: %w\nfix the cause and run \"%s\"",
			remains, s.journal.undoHint()))
	case len(s.result.Differences) > 0:
		s.result.Outcome = outcomeLeft
		s.out.Section("Changes since before the run:")
		for _, difference := range s.result.Differences {
			s.out.Bad("%s", difference)
		}
		err = exit.NotUndone(failure, errors.New("every step was undone, but the state differs from before the run; "+
			"see above"))
	default:
		s.out.Good("Nothing is left: links, addresses and routes of the namespace and of this machine are as before.")
	}
	if remains == nil && failure != nil && len(s.result.Differences) == 0 {
		s.result.Outcome = OutcomeFailed
		err = &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%w\nall completed steps were undone", failure)}
	}
	if err != nil {
		s.result.Error = err.Error()
	}
	return errors.Join(err, s.print())
}

// print writes the result as JSON or YAML. In text format, it prints nothing.
func (s *session) print() error {
	if s.Form == printer.FormText {
		return nil
	}
	s.result.Run, s.result.Topology, s.result.Namespace = s.attachment.SandboxID, s.record.Topology, s.namespace
	return printer.Encode(s.streams.Out, s.Form, s.result)
}

// CallOptions are the options shared by the commands that call plugins: the directory of the journal, the time limit
// for each call, and whether calls are logged.
type CallOptions struct {
	State   string
	Timeout time.Duration
	Log     bool
}

func (f *CallOptions) validate() error {
	if f.Timeout <= 0 {
		return exit.Refusef("cannot use --timeout %s; set the maximum duration of a plugin, for example 30s", f.Timeout)
	}
	return nil
}

// RunOptions are the options of "chain run". If Keep is set, the chain stays attached after the command exits.
type RunOptions struct {
	Options
	CallOptions
	Keep, Check bool
}

// Run performs all checks before it changes the machine, so that a rejected run leaves nothing to undo. It checks the
// flags, the topology, whether the journal contains earlier runs, the devices, and the plan, in that order.
func (f *RunOptions) Run(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) error {
	if err := f.validate(); err != nil {
		return err
	}
	topology, schemas, err := f.Load(streams.In)
	if err != nil {
		return err
	}
	if err := deps.CheckPrivilege(); err != nil {
		return err
	}
	opened, err := OpenRunJournal(f.State, deps.Clock)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }() // write errors have already been reported
	s := newSession(f, deps, streams, opened)
	before, err := opened.load(s.executor)
	if err != nil {
		return err
	}
	if err := before.checkUndone(opened.undoHint()); err != nil {
		return err
	}
	if err := s.prepare(ctx, topology, schemas); err != nil {
		return err
	}
	return s.runAndUndo(ctx)
}

// newSession connects the executor to the journal and the output. JSON and YAML output must not be mixed with progress
// messages.
func newSession(f *RunOptions, deps *osdeps.Deps, streams printer.Streams, opened *RunJournal) *session {
	progress := streams.Out
	if f.Form != printer.FormText {
		progress = streams.Err
	}
	s := &session{RunOptions: f, deps: deps, streams: streams, out: printer.New(progress), journal: opened}
	s.executor, s.narrator = newExecutor(deps, streams, s.out, opened, f.searched(deps), &f.CallOptions)
	return s
}

func newExecutor(deps *osdeps.Deps, streams printer.Streams, out *printer.Printer, opened *RunJournal, dirs []string,
	calls *CallOptions) (*executor.Executor, *Narrator) {
	narrator := &Narrator{Out: out}
	if calls.Log {
		narrator.Full = &printer.Printer{W: streams.Err} // colors in a plugin's output would also be control sequences
	}
	return executor.New(executor.Options{
		Exec: deps.Plugins(opened.lock()), Host: deps.Host, Journal: opened.Chains, Dirs: dirs,
		StepTimeout: calls.Timeout, Clock: deps.Clock, Log: narrator,
	}), narrator
}

// prepare finds the devices and the namespace, and compiles the plan. It changes nothing.
func (s *session) prepare(ctx context.Context, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas) error {
	id := s.deps.NewRunID()
	pod, err := s.parsePod(id)
	if err != nil {
		return err
	}
	if s.Netns != "" {
		if s.namespace, err = findNamespace(s.deps, s.Netns); err != nil {
			return err
		}
	}
	devices, losses, err := bindDevices(ctx, s.deps, topology, schemas, &s.DeviceOptions)
	if err := errors.Join(append(losses, err)...); err != nil {
		return err
	}
	// Take the baselines as late as possible, because any later change to a device is attributed to the run.
	if err := takeBaselines(s.deps, devices); err != nil {
		return err
	}
	plan, err := s.compile(ctx, s.deps, s.executor, topology, schemas, pod, devices, s.deps.MissingLinkTypes)
	if err != nil {
		return err
	}
	if s.Check {
		if err := s.executor.Status(ctx, plan); err != nil {
			return err
		}
	}
	s.attachment = executor.NewAttachment(id, pod, []cnichain.Plan{*plan})
	s.attachment.Pin, s.attachment.CreatedAt = filepath.Join(s.deps.NetnsDir, id), s.deps.Clock.Now()
	if s.namespace == "" {
		s.namespace, s.temporary = s.attachment.Pin, true
	}
	if s.node, err = s.deps.Hostname(); err != nil {
		return fmt.Errorf("cannot determine the name of this machine: %w", err)
	}
	s.record = RunRecord{Topology: topology.Name, Pin: s.attachment.Pin, Dirs: s.searched(s.deps),
		StartedAt: s.deps.Clock.Now()}
	return nil
}
