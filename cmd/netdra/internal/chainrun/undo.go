package chainrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// earlierLimit is the maximum time to wait for a CNI plugin that was started by an earlier run. It exceeds the default
// timeout of a call, which is 30 s.
const earlierLimit = 40 * time.Second

// UndoOptions are the flags of "chain undo".
type UndoOptions struct {
	CallOptions
	Forget bool
}

// undoer is the state of one "chain undo" command.
type undoer struct {
	*UndoOptions
	deps     *osdeps.Deps
	out      *printer.Printer
	journal  *RunJournal
	earlier  *earlierRuns
	executor *executor.Executor
	narrator *Narrator
	remains  []error
}

// Run undoes every run in the journal. It can be called again after an error, because undone runs have been removed
// from the journal.
func (f *UndoOptions) Run(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) error {
	if err := f.validate(); err != nil {
		return err
	}
	if err := deps.CheckPrivilege(); err != nil {
		return err
	}
	out := printer.New(streams.Out)
	if _, err := os.Stat(journalPath(f.State)); errors.Is(err, os.ErrNotExist) {
		out.Good("There is nothing to undo: no run was ever recorded in %s.", f.State)
		return nil
	}
	opened, err := OpenRunJournal(f.State, deps.Clock)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }() // write errors have already been reported
	u := &undoer{UndoOptions: f, deps: deps, out: out, journal: opened}
	u.executor, u.narrator = newExecutor(deps, streams, out, opened, nil, &f.CallOptions)
	if u.earlier, err = opened.load(u.executor); err != nil {
		return err
	}
	u.executor.Dirs = u.earlier.dirs()
	if err := u.awaitEarlier(ctx); err != nil {
		return exit.NotUndone(err)
	}
	return u.undoAll(ctx)
}

// awaitEarlier waits for plugins started by a killed run. If an ADD finished after the DEL for the same step, an
// interface would be left without a record.
func (u *undoer) awaitEarlier(ctx context.Context) error {
	running := u.deps.Plugins(u.journal.lock())
	if running.AwaitEarlier(ctx, time.Millisecond) == nil {
		return nil
	}
	u.out.Warn("a CNI plugin of an earlier run is still running: waiting for up to %s", earlierLimit)
	if err := running.AwaitEarlier(ctx, earlierLimit); err != nil {
		return fmt.Errorf("nothing was undone: %w; stop it (\"fuser %s\" shows it) and run \"%s\" again", err,
			u.journal.lock(), u.journal.undoHint())
	}
	return nil
}

// undoAll continues after an error, so that a run that cannot be undone does not block the devices of other runs.
// Leftovers are retried after the attachments, because undoing an attachment may create new leftovers.
func (u *undoer) undoAll(ctx context.Context) error {
	for _, key := range u.earlier.keys() {
		u.out.Printf("%s", u.earlier.describe(key))
		if err := u.undoRun(ctx, key); err != nil {
			u.remains = append(u.remains, err)
		}
	}
	u.narrator.watch(nil)
	for _, leftover := range u.executor.Leftovers() {
		if err := u.retryLeftover(ctx, leftover); err != nil {
			u.remains = append(u.remains, err)
		}
	}
	for _, damaged := range u.earlier.damaged {
		err := fmt.Errorf("the record %s of the journal cannot be read, so its run is not undone: %w",
			damaged.Key, damaged.Err)
		if u.Forget {
			u.out.Warn("forgotten: %v", err)
			err = errors.Join(u.journal.Chains.Delete(damaged.Key), u.journal.Chains.DeleteLeftover(damaged.Key),
				u.journal.Runs.Delete(damaged.Key))
		}
		if err != nil {
			u.remains = append(u.remains, err)
		}
	}
	if len(u.remains) > 0 {
		return exit.NotUndone(append(u.remains,
			fmt.Errorf("fix the cause and run \"%s\" again; --forget removes the record and leaves the rest on this "+
				"machine", u.journal.undoHint()))...)
	}
	u.out.Good("Nothing is left of earlier runs.")
	return nil
}

// undoRun undoes one run and prints the differences from the state before the run. These differences may also have been
// caused by other processes in the meantime. With --forget, undoRun removes the record and the namespace's name even if
// the attachment cannot be undone; the links of the attachment stay where they are.
func (u *undoer) undoRun(ctx context.Context, key string) error {
	record := u.earlier.runs[key]
	if slices.ContainsFunc(u.earlier.damaged, func(damaged journal.Damaged) bool { return damaged.Key == key }) &&
		!u.Forget {
		return nil // reported later, with all damaged records
	}
	if attachment := u.earlier.attachments[key]; attachment != nil {
		u.narrator.watch(attachment)
		if err := undoAttachment(ctx, u.executor, u.out, attachment); err != nil {
			if !u.Forget {
				return err
			}
			u.out.Warn("forgotten: %v", err)
			if err := errors.Join(u.deps.Host.Unpin(host.ReturnPath(attachment.Pin)),
				u.deps.Host.Unpin(attachment.Pin), u.journal.Chains.Delete(key)); err != nil {
				return err
			}
		}
	}
	if record.Pin == "" {
		return nil // the run's record was damaged
	}
	if err := u.deps.Host.Unpin(record.Pin); err != nil {
		return err
	}
	differences, err := machineDifferences(u.deps, record.Before)
	if err != nil {
		return err
	}
	for _, difference := range differences {
		u.out.Warn("changed since the start of the run, perhaps by another process: %s", difference)
	}
	return u.journal.Runs.Delete(key)
}

// retryLeftover retries a step that the executor has given up on. A signal that terminates the command does not
// interrupt the attempt, because killed plugins are a common cause of leftovers.
func (u *undoer) retryLeftover(ctx context.Context, leftover executor.Leftover) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*u.Timeout)
	defer cancel()
	err := u.executor.Retry(limited, leftover.Key)
	if err == nil {
		u.out.Good("%s of %s is undone now", leftover.Step().Title(), leftover.Attachment.SandboxID)
		return nil
	}
	if !u.Forget {
		return err
	}
	u.out.Warn("forgotten: %v", err)
	return u.journal.Chains.DeleteLeftover(leftover.Key)
}
