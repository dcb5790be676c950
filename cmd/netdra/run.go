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
		Short: "Attach a topology to a network namespace, show what is there, and undo it",
		Long: `run does what the driver does for a pod: it runs the CNI plugins of a NetworkTopology against a network namespace, in
order, and verifies that every interface is there. Then it shows the namespace, undoes everything, and proves that links,
addresses and routes of the namespace and of this machine are as before.

When a step fails, or with Ctrl-C, everything that was done is undone at once. A run that was killed, or left attached
with --keep, is undone by "netdra chain undo"; until then no further run begins.

A device is taken as one's own unless --shared says otherwise or it is a bridge: it must come back as it was, and is
brought back if a plugin does not. Links that carry this machine's default route are refused, and so are links with
addresses or a master unless they are shared: what is moved into a namespace loses these. --force takes them anyway.

{{ device.<attribute> }} has what the driver would publish, but for what a policy adds. The claim of {{ claim }} is called
as the pod. The selector of a step is checked, but you choose the link: whether the selector would take it is not.

--log shows secrets, too.`,
		Example: `  # one step takes a device; look at the interfaces from another shell until Enter
  sudo netdra chain run topologies.yaml --name macvlan-tuned --device eth1 --shared uplink --hold

  # a virtual function by its PCI address, into a namespace of yours, the result for a script
  sudo netdra chain run vf.yaml --device vf0=0000:3b:02.1 --netns blue -o json

  # why does the plugin fail? every call with input and output
  sudo netdra chain run topology.yaml --device uplink=eth1 --log

  # leave it attached, and undo it later
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.Run(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, &flags.Options)
	stateFlag(cmd, &flags.State)
	timeoutFlag(cmd, &flags.Timeout)
	logFlag(cmd, &flags.Log)
	cmd.Flags().BoolVar(&flags.Keep, "keep", false, "leave it attached; \"netdra chain undo\" undoes it")
	cmd.Flags().BoolVar(&flags.Hold, "hold", false, "wait for Enter or Ctrl-C before undoing")
	cmd.Flags().BoolVar(&flags.Check, "check", false, "ask the plugins that know them for STATUS before, and for CHECK while it is attached")
	cmd.MarkFlagsMutuallyExclusive("keep", "hold")
	return cmd
}
