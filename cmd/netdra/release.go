package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func releaseCommand(streams printer.Streams) *cobra.Command {
	flags := &nodeclient.ReleaseOptions{}
	cmd := &cobra.Command{
		Use:   "release [KEY]...",
		Short: "List and retry failed cleanups",
		Long: `Use release when a device is quarantined, or when doctor reports leftovers.

It lists the steps that the driver could not undo when a pod ended. After many attempts the driver stops, so that the
pod can terminate. The devices of these steps are quarantined: they cannot be allocated until they are clean and back
on the host. The driver retries every five minutes. With a KEY, or --all, it retries immediately: fix the reported
cause first.

Some cleanups can never succeed, for example if a plugin rejects the configuration that it was attached with. With a
KEY and --forget the driver retries and, if that fails, abandons the cleanup, provided that the exclusive device is on
the host. The device is offered again. Other leftovers of the plugin, such as addresses and rules, stay on the node.

With --orphans it lists files on the node without an owner: CDI specs of claims that are not prepared, pinned network
namespaces of sandboxes that no longer exist, and expired CNI logs. They are left only after a crash or after files
were restored. With --all the driver removes them. It checks each file again under its owner's lock, so that claims
and pods that are just starting are not affected. It does not call the CNI verb GC: after the loss of a journal,
plugins would free the addresses of running pods.

Exit status: 0 the cleanups are done or abandoned, 1 something could not be undone or removed, 2 the driver does not
answer.`,
		Example: `  # list failed cleanups of this node with their reasons
  sudo netdra release

  # retry one cleanup, or all of them
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0
  sudo netdra release --all

  # abandon a cleanup that can never succeed
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0 --forget

  # list orphaned files, then remove them
  sudo netdra release --orphans
  sudo netdra release --orphans --all`,
		RunE: func(cmd *cobra.Command, keys []string) error { return flags.Run(cmd.Context(), streams, keys) },
	}
	socketFlag(cmd, &flags.Socket)
	cmd.Flags().BoolVar(&flags.All, "all", false, "retry every cleanup; with --orphans, remove every file")
	cmd.Flags().BoolVar(&flags.Orphans, "orphans", false, "list orphaned files instead of failed cleanups")
	cmd.Flags().BoolVar(&flags.Forget, "forget", false, "abandon each KEY whose cleanup fails again")
	cmd.MarkFlagsMutuallyExclusive("forget", "all")
	cmd.MarkFlagsMutuallyExclusive("forget", "orphans")
	listFlag(cmd, &flags.Form)
	return cmd
}
