package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func traceCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &nodeclient.TraceOptions{}
	cmd := &cobra.Command{
		Use:   "trace [[NAMESPACE/]CLAIM]",
		Short: "Show the CNI calls for a claim",
		Long: `Use trace on the pod's node when a pod waits for its interfaces or has wrong ones. It reads the
driver's log of CNI calls.

For each sandbox it prints a timeline: the step and plugin of each call, its start, duration and result. --calls adds
the environment, input, output and error of each plugin. Without a claim it lists the claims in the log in the form that
the command accepts, with their pods, the number of calls and failures, and the time and result of the last call; with
--failed it lists only claims with a failed call. A claim without a namespace is looked up in "default".

Values of keys that look like secrets were removed, and long streams truncated, when the log was written. Times are in
UTC. A log is kept for an hour after the release of its claim.

Exit status: 0 every call succeeded, 1 a call failed, 2 the log has no calls of the claim.`,
		Example: `  # list the claims in the log
  sudo netdra trace

  # show the calls for a claim
  sudo netdra trace default/my-pod-net-8x2kq

  # show why a plugin failed
  sudo netdra trace my-pod-net-8x2kq --calls --failed`,
		Args: countArguments(0, 1, "CLAIM", "default/my-pod-net-8x2kq"),
		RunE: func(cmd *cobra.Command, claims []string) error {
			return flags.Run(cmd.Context(), streams, claims)
		},
	}
	set := cmd.Flags()
	logDirFlag(cmd, &flags.Dir)
	socketFlag(cmd, &flags.Socket)
	set.BoolVar(&flags.Calls, "calls", false, "add the environment, input and output of each plugin")
	set.BoolVar(&flags.Failed, "failed", false, "only show failed calls, and claims with one")
	formFlag(cmd, &flags.Form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output", "calls", "failed"}, claims: true,
		each: true, object: func(place *remote.Place) []string { return place.Claims }})
	return cmd
}
