package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func traceCommand(streams printer.Streams) *cobra.Command {
	var dir, form, socket string
	var calls bool
	cmd := &cobra.Command{
		Use:   "trace [[NAMESPACE/]CLAIM]",
		Short: "Show every CNI call that was made for a claim on this node, with times and results",
		Long: `trace reads the driver's log of CNI calls on this node: which step of the topology ran which plugin, when, how long that
took, and what came of it. Without a claim it lists those that the log has; it keeps them for an hour after their release.

Exit status: 0 every call succeeded, 1 one failed, 2 the log has nothing of the claim.`,
		Example: `  # which claims are there?
  sudo netdra trace

  # what has been done for one, and with what went in and came out
  sudo netdra trace default/my-pod-net-8x2kq
  sudo netdra trace my-pod-net-8x2kq --calls`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := printer.CheckForm(form); err != nil {
				return err
			}
			if len(arguments) == 0 {
				return nodeclient.ListLogged(streams, form, dir)
			}
			return nodeclient.Trace(streams, form, dir, arguments[0], calls)
		},
	}
	cmd.Flags().StringVar(&dir, "log-dir", nodeclient.DefaultLogDir, "where the driver logs CNI calls")
	cmd.Flags().StringVar(&socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers, for the completion of names")
	cmd.ValidArgsFunction = completeFrom(&socket, nodeclient.ClaimNames)
	cmd.Flags().BoolVar(&calls, "calls", false, "show what each plugin was given and what it returned, too")
	formFlag(cmd, &form)
	_ = cmd.MarkFlagDirname("log-dir") // the name of a flag that exists is no error
	return cmd
}
