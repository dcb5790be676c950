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
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// RunOptions are those of chain run. Timeout is for one call of a plugin. Keep leaves the chain attached after the
// command, Hold until Enter or a signal.
type RunOptions struct {
	Options
	State   string
	Timeout time.Duration
	Keep    bool
	Hold    bool
	Check   bool
	Log     bool
}

// Run does everything first that changes nothing, so that a refusal leaves nothing to undo. The phases: usage, the
// topology, the journal and what earlier runs have left in it, devices and plan; then everything that changes the
// machine.
func (f *RunOptions) Run(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) error {
	if err := printer.CheckForm(f.Form); err != nil {
		return err
	}
	if f.Timeout <= 0 {
		return exit.Refusef("--timeout %s: say how long a plugin may take, for example 30s", f.Timeout)
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
	defer func() { _ = opened.Close() }() // what it can't write is noted
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

// newSession connects the engine with the journal and the output. As JSON or YAML the result is alone on the standard
// output, and progress goes to the other.
func newSession(f *RunOptions, deps *osdeps.Deps, streams printer.Streams, opened *RunJournal) *session {
	progress := streams.Out
	if f.Form != printer.FormText {
		progress = streams.Err
	}
	s := &session{RunOptions: f, deps: deps, streams: streams, out: printer.New(progress), journal: opened}
	s.executor, s.narrator = newExecutor(deps, streams, s.out, opened, f.searched(deps), f.Timeout, f.Log)
	return s
}

func newExecutor(deps *osdeps.Deps, streams printer.Streams, out *printer.Printer, opened *RunJournal, dirs []string,
	timeout time.Duration, log bool) (*executor.Executor, *narrator) {
	told := &narrator{Journal: opened.Chains, out: out, clock: deps.Clock}
	options := executor.Options{
		Exec: deps.Plugins(opened.lock()), Host: deps.Host, Journal: told, Dirs: dirs, StepTimeout: timeout,
		Clock: deps.Clock,
	}
	if log {
		options.Log = &CallLog{W: streams.Err}
		out.Terminal = false // lines of the log would stand in the middle of a line that is taken back
	}
	return executor.New(options), told
}

// prepare finds devices and namespace, and compiles. It changes nothing.
func (s *session) prepare(ctx context.Context, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas) error {
	id, err := s.deps.NewRunID()
	if err != nil {
		return err
	}
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
	// As late as possible, since whatever changes the device from here on is seen as a change of the run.
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
		return fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	s.record = RunRecord{Topology: topology.Name, Pin: s.attachment.Pin, Dirs: s.searched(s.deps),
		StartedAt: s.deps.Clock.Now()}
	return nil
}
