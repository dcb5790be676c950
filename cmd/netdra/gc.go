package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func gcCommand(streams printer.Streams) *cobra.Command {
	var socket, form string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show what is left on this node that nobody has, and have the driver remove it",
		Long: `gc shows CDI specs of claims that are not prepared, network namespaces that are kept for sandboxes that are gone, and CNI logs that
are older than they should be. There is nothing of that, but after crashes, or when somebody has restored files. With --all the
driver of this node removes it: it looks at each thing once more, under the lock of whoever could need it at this moment, so that
a claim that is being prepared and a pod that is being started lose nothing.

What could not be undone is not touched: "netdra release" is for that. CNI plugins are not asked to collect garbage (the verb GC):
they would take the addresses of every pod that the driver does not know, as after a lost journal.

Exit status: 0 nothing is left, or it was shown, 1 something could not be removed, 2 the driver does not answer.`,
		Example: `  sudo netdra gc
  sudo netdra gc --all
  sudo netdra gc -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printer.CheckListForm(form); err != nil {
				return err
			}
			method := http.MethodGet
			if all && !dryRun {
				method = http.MethodPost
			}
			found, err := nodeclient.ReadOrphans(cmd.Context(), socket, method)
			if err != nil {
				return err
			}
			return nodeclient.PrintOrphans(streams, form, found, method == http.MethodPost)
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&all, "all", false, "remove it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show it, as without --all")
	cmd.MarkFlagsMutuallyExclusive("all", "dry-run")
	listFlag(cmd, &form)
	return cmd
}
