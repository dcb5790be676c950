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
		Short: "List and retry cleanups that failed",
		Long: `Use release when a device is in quarantine, or when doctor reports something left over.

It lists the steps that the driver could not undo when a pod ended. After many attempts the driver gives up, so that
the pod can go. Their devices are in quarantine: no claim gets them until they are clean and back on the host. The
driver retries every five minutes. With a KEY, or --all, it retries at once: fix what the reason says first.

Some cleanups can never succeed, for example when a plugin refuses the configuration that it was given. With a KEY
and --forget the driver tries once more and then gives the cleanup up, if the exclusive device is on the host. Its
device is offered again. What the plugin may have left elsewhere, such as addresses and rules, stays on the node.

With --orphans release lists files on the node without an owner: CDI specs of claims that are not prepared, pinned
network namespaces of sandboxes that are gone, and CNI logs that are too old. They remain only after crashes, or when
somebody restored files. With --all the driver removes them. It checks each one again under the lock that its owner
would hold, so that claims and pods that are just starting lose nothing. CNI plugins are not asked to collect garbage
(the verb GC): after a lost journal they would free the addresses of running pods.

Exit status: 0 nothing is left of what was named, or it was given up, 1 something could not be undone or removed, 2 the
driver does not answer.`,
		Example: `  # list what could not be undone on this node, and why
  sudo netdra release

  # retry one cleanup, or all of them
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0
  sudo netdra release --all

  # give up a cleanup that can never succeed
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0 --forget

  # list orphaned files, then remove them
  sudo netdra release --orphans
  sudo netdra release --orphans --all`,
		RunE: func(cmd *cobra.Command, keys []string) error { return flags.Run(cmd.Context(), streams, keys) },
	}
	socketFlag(cmd, &flags.Socket)
	cmd.ValidArgsFunction = completeFrom(&flags.Socket, nodeclient.LeftoverKeys)
	cmd.Flags().BoolVar(&flags.All, "all", false, "retry every cleanup; with --orphans, remove every file")
	cmd.Flags().BoolVar(&flags.Orphans, "orphans", false, "orphaned files, in place of cleanups that failed")
	cmd.Flags().BoolVar(&flags.Forget, "forget", false, "give up each KEY whose cleanup fails again")
	cmd.MarkFlagsMutuallyExclusive("forget", "all")
	cmd.MarkFlagsMutuallyExclusive("forget", "orphans")
	listFlag(cmd, &flags.Form)
	return cmd
}

// gcCommand is the former name of "release --orphans".
func gcCommand(streams printer.Streams) *cobra.Command {
	cmd := releaseCommand(streams)
	cmd.Use, cmd.Hidden, cmd.Args, cmd.ValidArgsFunction = "gc", true, noArguments(""), nil
	cmd.Short = `Former name of "release --orphans"`
	mustSet(cmd, "orphans")
	cmd.Flags().Bool("dry-run", false, "only list, as without --all")
	cmd.MarkFlagsMutuallyExclusive("all", "dry-run")
	return cmd
}
