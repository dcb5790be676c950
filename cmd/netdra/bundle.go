package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/bundle"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// bundleCommand returns the command bundle. run runs other commands in this process with the same dependencies, so the
// archive contains the output that a user would see.
func bundleCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var output string
	save := func(files []bundle.File) error {
		archive, err := bundle.Pack(files, deps.Clock.Now())
		if err != nil {
			return err
		}
		return printer.Save(streams, output, archive)
	}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write an archive for fault reports",
		Long: `Use bundle when you report a fault, and attach the archive.

It writes what other commands print about the node: versions, doctor, devices, claims, cleanups that failed, facts, the
HTML report, and the log of CNI calls. "commands.txt" has what could not be read. From elsewhere it adds policies,
topologies, schemas, classes and slices of the cluster.

Values of keys that look like secrets (password, secret, token, credential, private, api-key, psk) are removed from
logs and objects. Names of pods and nodes, addresses and devices are in it: look at it before you publish it.

Exit status: 0 the archive is written, 2 nothing could be collected.`,
		Example: `  sudo netdra bundle --file bundle.tar.gz
  netdra bundle --node worker-1 --file bundle.tar.gz
  netdra bundle --all-nodes --file bundle.tar.gz`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			command := func(ctx context.Context, streams printer.Streams, arguments ...string) int {
				return run(ctx, deps, streams, arguments...)
			}
			return save(bundle.Node(cmd.Context(), command))
		},
	}
	fileFlag(cmd, &output, "archive (tar.gz)", "tar.gz")
	fetch := func(ctx context.Context, cluster *remote.Cluster, node string) error {
		files, err := bundle.Remote(ctx, cluster, node)
		if err != nil {
			return err
		}
		return save(files)
	}
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"file", "output"}, single: fetch,
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error { return fetch(ctx, cluster, "") }})
	return cmd
}
