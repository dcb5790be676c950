package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/report"
)

func reportCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &report.Options{}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write an HTML report of the node",
		Long: `Use report to get an overview of a whole node, or to share its state.

It writes a single, self-contained HTML file: the problems that "netdra doctor" finds; the devices by NUMA node and
PCIe root, each with how it is offered, which claims hold it, how much is used, and why it is hidden; the counters of
the pools; and for each claim its chain with the times, results and errors of its steps.

Without -f it uses the data of this node's driver, its log of CNI calls, and the checks of doctor. With -f it uses the
policies in files, for this machine or a recorded one, and does not show which claims hold a device.

Exit status: 0 the page was written, 2 the driver does not answer, or a file cannot be read or written.`,
		Example: `  # on a node, as root
  sudo netdra report --file report.html

  # from a workstation, of one node or of the whole cluster
  kubectl netdra report --node worker-1 --file worker-1.html
  kubectl netdra report --all-nodes --file cluster.html

  # before policies are applied, for a recorded machine
  netdra report -f policies.yaml --from worker-1 --file report.html`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	addInputFlags(cmd, &flags.Inputs)
	logDirFlag(cmd, &flags.LogDir)
	rootFlag(cmd, &flags.Root)
	fileFlag(cmd, &flags.Output, "HTML page", "html")
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"file"}, local: []string{"filename", "from"},
		single: saveFrom(streams, &flags.Output, "report"),
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			page, err := report.Cluster(ctx, cluster, deps.Clock.Now())
			if err != nil {
				return err
			}
			return printer.Save(streams, flags.Output, page)
		}})
	return cmd
}
