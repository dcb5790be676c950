package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func runCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.RunOptions{}
	cmd := &cobra.Command{
		Use:   "run TOPOLOGY --device STEP=LINK...",
		Short: "Attach a topology, verify, and undo it",
		Long: `Use run to try a topology on real links. It does what the driver does for a pod.

It runs the CNI plugins of a NetworkTopology against a network namespace, in order, and verifies that every interface
is there. Then it prints the namespace, undoes everything, and verifies that links, addresses and routes of the
namespace and of this machine are as before. If a step fails, or on Ctrl-C, it undoes the completed steps at once.
"netdra chain undo" undoes a run that was killed, or left attached with --keep; until then no further run begins.

A device is exclusive unless it is a bridge or --shared names its step: it must come back as it was, and is restored
if a plugin does not. Links that carry this machine's default route are refused, and so are exclusive links with
addresses or a master, which a move into a namespace would remove, and links that the driver of this node has given to
claims, unless both share them. --force takes them anyway.

{{ device.<attribute> }} has what the driver would publish, except what a policy adds. The claim of {{ claim }} has
the name of the pod. The selector of a step is validated but not evaluated: you choose the link.

With -o json and -o yaml the progress goes to stderr. --log prints secrets, too.`,
		Example: `  # one step takes a device; look at the interfaces from another shell until Enter
  sudo netdra chain run topologies.yaml --name macvlan-tuned --device eth1 --shared uplink --hold

  # a virtual function by its PCI address, into a namespace of yours, the result for a script
  sudo netdra chain run vf.yaml --device vf0=0000:3b:02.1 --netns blue -o json

  # why does the plugin fail? every call with input and output
  sudo netdra chain run topology.yaml --device uplink=eth1 --log

  # leave it attached, and undo it later
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: oneArgument("TOPOLOGY", "topology.yaml --device uplink=eth1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.Run(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, &flags.Options)
	stateFlag(cmd, &flags.State)
	timeoutFlag(cmd, &flags.Timeout)
	logFlag(cmd, &flags.Log)
	cmd.Flags().BoolVar(&flags.Keep, "keep", false, "leave it attached, for \"netdra chain undo\"")
	cmd.Flags().BoolVar(&flags.Hold, "hold", false, "wait for Enter or Ctrl-C before undoing")
	cmd.Flags().BoolVar(&flags.Check, "check", false,
		"call STATUS before and CHECK while attached, for plugins that have them")
	cmd.MarkFlagsMutuallyExclusive("keep", "hold")
	return cmd
}
