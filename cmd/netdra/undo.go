package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func undoCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.UndoOptions{}
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
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), &deps, streams) },
	}
	stateFlag(cmd, &flags.State)
	timeoutFlag(cmd, &flags.Timeout)
	logFlag(cmd, &flags.Log)
	cmd.Flags().BoolVar(&flags.Forget, "forget", false, "forget what can't be undone: it stays on this machine")
	return cmd
}
