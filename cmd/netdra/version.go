package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func versionCommand(streams printer.Streams) *cobra.Command {
	var form, socket string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of netdra and of what runs on this node",
		Long: `version prints which build netdra is, and, if the driver of this node answers, its version and those of kubelet, container
runtime and kernel. Name them when you report a fault.`,
		Example: `  netdra version
  sudo netdra version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printer.CheckForm(form); err != nil {
				return err
			}
			all := nodeclient.VersionsOf(nodeclient.ReadState(cmd.Context(), socket))
			if form != printer.FormText {
				return printer.Encode(streams.Out, form, all)
			}
			printer.New(streams.Out).Printf("%s", all)
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers")
	formFlag(cmd, &form)
	return cmd
}
