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

// RunOptions are the options of "chain run". Timeout applies to each plugin call. Keep leaves the chain attached after
// the command.
type RunOptions struct {
	Options
	State   string
	Timeout time.Duration
	Keep    bool
	Check   bool
	Log     bool
}

// Run performs all checks before it changes anything, so that a rejected run leaves nothing to undo. It first checks
// the flags, the topology, the journal with the state of earlier runs, the devices, and the plan; only then does it
// change the machine.
func (f *RunOptions) Run(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) error {
	if f.Timeout <= 0 {
		return exit.Refusef("cannot use --timeout %s; set the maximum duration of a plugin, for example 30s", f.Timeout)
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
	defer func() { _ = opened.Close() }() // write errors have been reported
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

// newSession connects the executor to the journal and the output. For JSON or YAML, standard output contains only the
// result, and progress is written to standard error.
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
	timeout time.Duration, log bool) (*executor.Executor, *Narrator) {
	narrator := &Narrator{Out: out}
	if log {
		narrator.Full = &printer.Printer{W: streams.Err} // colours in a plugin's output are also control sequences
	}
	return executor.New(executor.Options{
		Exec: deps.Plugins(opened.lock()), Host: deps.Host, Journal: opened.Chains, Dirs: dirs, StepTimeout: timeout,
		Clock: deps.Clock, Log: narrator,
	}), narrator
}

// prepare finds the devices and the namespace, and compiles the plan. It changes nothing.
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
	// Take the baselines as late as possible, since any later change to a device counts as a change made by the run.
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
