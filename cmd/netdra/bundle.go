package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/bundle"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// bundleCommand returns the bundle command. It runs other commands in this process with the same dependencies, so that
// the archive contains the output that a user would see.
func bundleCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect diagnostics for a bug report",
		Long: `Use bundle to collect diagnostics for a bug report, and attach the archive to the report.

The archive contains the output of other commands for the node: versions, doctor, devices, claims, failed cleanups,
facts, the HTML report, and the log of CNI calls. "commands.txt" lists the commands with their exit status and errors.

Values of keys that look like secrets (password, secret, token, credential, private, api-key, psk) are removed from
the log. Names of pods and nodes, addresses and devices are included. Review the archive before you publish
it.

Exit status: 0 the archive was written, 2 nothing could be collected.`,
		Example: `  sudo netdra bundle --file bundle.tar.gz
  netdra bundle --node worker-1 --file bundle.tar.gz`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			command := func(ctx context.Context, streams printer.Streams, arguments ...string) int {
				return run(ctx, deps, streams, arguments...)
			}
			archive, err := bundle.Write(bundle.Node(cmd.Context(), command), deps.Clock.Now())
			if err != nil {
				return err
			}
			return printer.Save(streams, output, archive)
		},
	}
	fileFlag(cmd, &output, "archive (tar.gz)", "tar.gz")
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"file"}, single: saveFrom(streams, &output, "bundle")})
	return cmd
}
