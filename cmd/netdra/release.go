package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func releaseCommand(streams printer.Streams) *cobra.Command {
	var socket, form string
	var all bool
	cmd := &cobra.Command{
		Use:   "release [KEY]...",
		Short: "Show what the driver of this node could not undo, and have it try again",
		Long: `release shows what was left when a pod ended: steps that the driver tried to undo many times and gave up, so that the pod
could go. A device that is left over is in quarantine: nobody gets it until it is clean and home. The driver tries again every
five minutes by itself; after you have put right what the reason says, release it at once.

Exit status: 0 nothing is left of what was named, 1 something could not be undone again, 2 the driver does not answer.`,
		Example: `  # what is left over on this node, and why
  sudo netdra release

  # try one of them again, or all
  sudo netdra release 5f1c…/uplink/0
  sudo netdra release --all`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if err := printer.CheckForm(form); err != nil {
				return err
			}
			driver := nodeclient.New(socket)
			leftovers, err := driver.Leftovers(cmd.Context())
			if err != nil {
				return err
			}
			if all {
				keys = nil
				for i := range leftovers {
					keys = append(keys, leftovers[i].Key)
				}
			}
			if len(keys) == 0 {
				return nodeclient.ShowLeftovers(streams, form, leftovers)
			}
			return nodeclient.ReleaseKeys(cmd.Context(), printer.New(streams.Out), driver, keys)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", nodeclient.DefaultSocket(), "where the driver answers")
	cmd.ValidArgsFunction = completeFrom(&socket, nodeclient.LeftoverKeys)
	cmd.Flags().BoolVar(&all, "all", false, "try all of them again")
	formFlag(cmd, &form)
	return cmd
}
