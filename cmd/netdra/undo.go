package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// earlierLimit is how long a CNI plugin that an earlier run started may still run.
const earlierLimit = 40 * time.Second

type undoFlags struct {
	state   string
	timeout time.Duration
	forget  bool
	log     bool
}

func undoCommand(on machine, to console) *cobra.Command {
	flags := &undoFlags{}
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Undo runs that were killed or kept, or that could not be undone",
		Long: `undo undoes everything that "netdra chain run" has written to its journal and not undone: runs with --keep, runs that
were killed, and steps that could not be undone. It first waits until no plugin runs any more that a killed run has
started. It may be called at any time and any number of times.

What can't be undone stays in the journal, and no further run begins. Put right what the plugin complains of and call undo
again. --forget tries once more and then forgets it: what it says then stays on this machine, and is yours to remove.

The exit status is 0 when nothing is left, and 3 otherwise.`,
		Example: `  sudo netdra chain undo
  sudo netdra chain undo --log
  sudo netdra chain undo --forget`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), &on, to) },
	}
	stateFlag(cmd, &flags.state)
	timeoutFlag(cmd, &flags.timeout)
	logFlag(cmd, &flags.log)
	cmd.Flags().BoolVar(&flags.forget, "forget", false, "forget what can't be undone: it stays on this machine")
	return cmd
}

// undoing is one call of undo.
type undoing struct {
	*undoFlags
	on       *machine
	out      *printer
	state    *state
	earlier  *earlier
	executor *executor.Executor
	narrator *narrator
	remains  []error
}

func (f *undoFlags) run(ctx context.Context, on *machine, to console) error {
	if f.timeout <= 0 {
		return usage("--timeout %s: say how long a plugin may take, for example 30s", f.timeout)
	}
	if err := on.mayChange(); err != nil {
		return err
	}
	out := newPrinter(to.out)
	if _, err := os.Stat(journalPath(f.state)); errors.Is(err, os.ErrNotExist) {
		out.good("There is nothing to undo: no run has ever been written to %s.", f.state)
		return nil
	}
	opened, err := openState(f.state, on.clock.Now())
	if err != nil {
		return err
	}
	defer func() { _ = opened.close() }() // every commit was synchronous
	u := &undoing{undoFlags: f, on: on, out: out, state: opened}
	u.executor, u.narrator = newExecutor(on, to, out, opened, nil, f.timeout, f.log)
	if u.earlier, err = opened.load(u.executor); err != nil {
		return err
	}
	u.executor.Dirs = u.earlier.dirs()
	if err := u.awaitEarlier(ctx); err != nil {
		return left(err)
	}
	return u.all(ctx)
}

// awaitEarlier waits for plugins that a killed run has started: an ADD that ends after its DEL leaves what nobody knows.
func (u *undoing) awaitEarlier(ctx context.Context) error {
	running := u.on.plugins(u.state.lock())
	if running.AwaitEarlier(ctx, time.Millisecond) == nil {
		return nil
	}
	u.out.warn("a CNI plugin of an earlier run still runs: waiting for it, %s at most", earlierLimit)
	if err := running.AwaitEarlier(ctx, earlierLimit); err != nil {
		return fmt.Errorf("nothing was undone: %w: end it (\"fuser %s\" shows it) and say \"%s\" again", err, u.state.lock(), u.state.undoHint())
	}
	return nil
}

func (u *undoing) all(ctx context.Context) error {
	for _, key := range u.earlier.keys() {
		u.out.say("%s", u.earlier.describe(key))
		if err := u.one(ctx, key); err != nil {
			u.remains = append(u.remains, err)
		}
	}
	for _, leftover := range u.executor.Leftovers() {
		if err := u.leftover(ctx, leftover); err != nil {
			u.remains = append(u.remains, err)
		}
	}
	for _, damaged := range u.earlier.damaged {
		err := fmt.Errorf("the record %s of the journal can't be read, so what it stands for is not undone: %w", damaged.Key, damaged.Err)
		if u.forget {
			u.out.warn("forgotten: %v", err)
			err = errors.Join(u.state.chains.Delete(damaged.Key), u.state.chains.DeleteLeftover(damaged.Key), u.state.runs.Delete(damaged.Key))
		}
		if err != nil {
			u.remains = append(u.remains, err)
		}
	}
	if len(u.remains) > 0 {
		return left(append(u.remains, fmt.Errorf("put that right and say \"%s\" again; with --forget it is forgotten and stays on this machine", u.state.undoHint()))...)
	}
	u.out.good("Nothing is left of earlier runs.")
	return nil
}

// one undoes one run and says what is not as it was before: that may be others' doing, since time has passed.
func (u *undoing) one(ctx context.Context, key string) error {
	record := u.earlier.runs[key]
	if slices.ContainsFunc(u.earlier.damaged, func(damaged journal.Damaged) bool { return damaged.Key == key }) && !u.forget {
		return nil // that it can't be read is told with the other damage
	}
	if attachment := u.earlier.attachments[key]; attachment != nil {
		u.narrator.begin(attachment)
		if err := undoAttachment(ctx, u.executor, u.out, attachment); err != nil {
			if !u.forget {
				return err
			}
			u.out.warn("forgotten: %v", err)
			if err := errors.Join(u.on.host.Unpin(attachment.Pin), u.state.chains.Delete(key)); err != nil {
				return err
			}
		}
	}
	if record.Pin == "" {
		return nil // its run record was damaged
	}
	if err := u.on.host.Unpin(record.Pin); err != nil {
		return err
	}
	differences, err := machineDifferences(u.on, record.Before)
	if err != nil {
		return err
	}
	for _, difference := range differences {
		u.out.warn("since that run began, perhaps by others: %s", difference)
	}
	return u.state.runs.Delete(key)
}

// leftover tries once more what was given up.
func (u *undoing) leftover(ctx context.Context, leftover executor.Leftover) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*u.timeout)
	defer cancel()
	err := u.executor.Retry(limited, leftover.Key)
	if err == nil {
		u.out.good("%s of %s is undone now", leftover.Step().Title(), leftover.Attachment.SandboxID)
		return nil
	}
	if !u.forget {
		return err
	}
	u.out.warn("forgotten: %v", err)
	return u.state.chains.DeleteLeftover(leftover.Key)
}
