package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func logsCommand(streams printer.Streams) *cobra.Command {
	var dir, form, socket string
	var failed bool
	cmd := &cobra.Command{
		Use:   "logs [NAMESPACE/]CLAIM",
		Short: "Print every CNI call that was made for a claim on this node, in full",
		Long: `logs prints the driver's log of CNI calls for a claim, in the order in which they were made: the plugin, its variables, what it was
given, what it returned, and its error. Values of keys that look like secrets were left out when they were written, and long
streams cut. Times are those of this machine. "netdra trace" shows the same calls as a time line. A log is kept for an hour after the release of its claim.

Exit status: 0 every call succeeded, 1 one failed, 2 the log has nothing of the claim.`,
		Example: `  sudo netdra logs default/my-pod-net-8x2kq
  sudo netdra logs my-pod-net-8x2kq --failed
  sudo netdra logs my-pod-net-8x2kq -o json | jq '.[].stdin'`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := printer.CheckForm(form); err != nil {
				return err
			}
			calls, err := nodeclient.ReadCalls(streams, dir, arguments[0])
			if err != nil {
				return err
			}
			return nodeclient.PrintLogs(streams, form, calls, failed)
		},
		ValidArgsFunction: completeFrom(&socket, nodeclient.ClaimNames),
	}
	cmd.Flags().StringVar(&dir, "log-dir", nodeclient.DefaultLogDir, "where the driver logs CNI calls")
	cmd.Flags().BoolVar(&failed, "failed", false, "only calls that have failed")
	cmd.Flags().StringVar(&socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers, for the completion of names")
	formFlag(cmd, &form)
	_ = cmd.MarkFlagDirname("log-dir") // the name of a flag that exists is no error
	return cmd
}
