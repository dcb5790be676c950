package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/report"
)

func reportCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &report.Options{}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Make a page of the node: its devices, who holds them, what is wrong, and the chains of its claims",
		Long: `report makes one HTML file, which needs nothing else and fetches nothing: problems first; the machine with its NUMA nodes,
PCIe roots, physical and virtual functions, bridges, bonds and VLANs; for each device what is offered of it, who holds it, what
is left, and why it is hidden; and for every claim its chain with the times, results and errors of its steps.

Without -f the driver of this node is asked, and its log of CNI calls is read. With -f nothing is asked of anybody, the machine
may be one that "netdra facts" has recorded, and nobody knows who holds what.

With --serve the page is made anew whenever it is opened, until the command is ended, at an address of this machine only. The
address that is printed has a word in it that nobody else knows: other users of the machine may not read what the driver tells
root. From elsewhere go there with: ssh -L 9681:127.0.0.1:9681 NODE`,
		Example: `  # on a node, as root
  sudo netdra report -o report.html
  sudo netdra report --serve 127.0.0.1:9681

  # before policies are applied, for a recorded machine
  netdra report -f policies.yaml --from worker-1 -o report.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	addInputFlags(cmd, &flags.Inputs)
	set := cmd.Flags()
	set.StringVar(&flags.Socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers, if there is no -f")
	set.StringVar(&flags.LogDir, "log-dir", nodeclient.DefaultLogDir, "where the driver logs CNI calls")
	set.StringVarP(&flags.Output, "output", "o", "", "file to write the page to (default: the standard output)")
	set.StringVar(&flags.Serve, "serve", "", "serve the page at this loopback address and port in place of writing it, for example 127.0.0.1:9681")
	cmd.MarkFlagsMutuallyExclusive("output", "serve")
	// The names of flags that exist are no errors.
	_ = cmd.MarkFlagFilename("output", "html")
	_ = cmd.MarkFlagDirname("log-dir")
	return cmd
}
