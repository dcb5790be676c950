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
		Short: "Undo earlier runs",
		Long: `Use undo after a run that was killed, that was kept with --keep, or that could not be undone. It may
be called at any time.

It undoes everything that "netdra chain run" has in its journal. First it waits until plugins of a killed run have
ended. What cannot be undone stays in the journal, and no further run begins: fix what the plugin reports and call
undo again. --forget tries once more and then removes it from the journal: what it printed stays on this machine for
you to remove.

Exit status: 0 nothing is left, 3 something could not be undone.`,
		Example: `  sudo netdra chain undo
  sudo netdra chain undo --log
  sudo netdra chain undo --forget`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), &deps, streams) },
	}
	stateFlag(cmd, &flags.State)
	timeoutFlag(cmd, &flags.Timeout)
	logFlag(cmd, &flags.Log)
	cmd.Flags().BoolVar(&flags.Forget, "forget", false,
		"remove from the journal what cannot be undone: it stays on this machine")
	return cmd
}
