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
		Short: "Print versions for bug reports",
		Long: `Use version when you report a bug.

It prints the build of netdra and, if the driver of this node answers, the versions of the driver, the kubelet, the
container runtime and the kernel.`,
		Example: `  netdra version
  sudo netdra version -o json`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := nodeclient.VersionsOf(nodeclient.ReadState(cmd.Context(), socket))
			return printer.Show(streams.Out, form, all, func(out *printer.Printer) { out.Printf("%s", all) })
		},
	}
	socketFlag(cmd, &socket)
	formFlag(cmd, &form)
	return cmd
}
