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
		Long: `Use undo after a run that was killed, that was kept with --keep, or that could not be undone. You can
call it at any time.

It undoes everything in the journal of "netdra chain run". It first waits until the plugins of a killed run have
ended. Steps that cannot be undone stay in the journal, and no other run can start: fix the error that the plugin
reports and call undo again. --forget retries and, if that fails, removes these steps from the journal: clean up the
printed leftovers manually.

Exit status: 0 everything is undone, 3 something could not be undone.`,
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
		"remove steps that cannot be undone from the journal; their leftovers stay on this machine")
	return cmd
}
