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
		Short: "Attach, verify and undo a topology",
		Long: `Use run to try a topology on real links. It does what the driver does for a pod.

It runs the CNI plugins of a NetworkTopology against a network namespace, in order, and verifies that every interface
exists. Then it prints the namespace, undoes everything, and verifies that the links, addresses and routes of the
namespace and of this machine are as before. If a step fails, or on Ctrl-C, it undoes the completed steps immediately.
"netdra chain undo" undoes a run that was killed, or left attached with --keep; no other run can start before that.

A device is exclusive unless it is a bridge or --shared names its step. Exclusive devices must return unchanged; run
restores them if the plugin does not. Links that carry this machine's default route are rejected. So are exclusive
links with addresses or a master, which they would lose in another namespace, and links that the driver of this node
has allocated to claims, unless both uses are shared. --force uses them anyway.

{{ device.<attribute> }} has the values that the driver would publish, without attributes that policies add. The claim
in {{ claim }} has the name of the pod. The selector of a step is validated but not evaluated: you choose the link.

With -o json and -o yaml the progress is written to stderr. --log does not remove secrets.`,
		Example: `  # one step takes a device
  sudo netdra chain run topologies.yaml --name macvlan-tuned --device eth1 --shared uplink

  # move a virtual function, given by its PCI address, to an existing namespace; print the result for a script
  sudo netdra chain run vf.yaml --device vf0=0000:3b:02.1 --netns blue -o json

  # log the input and output of every call, to debug a failing plugin
  sudo netdra chain run topology.yaml --device uplink=eth1 --log

  # leave it attached to inspect the interfaces, and undo it later
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: countArguments(1, 1, "TOPOLOGY", "topology.yaml --device uplink=eth1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.Run(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, &flags.Options)
	stateFlag(cmd, &flags.State)
	timeoutFlag(cmd, &flags.Timeout)
	logFlag(cmd, &flags.Log)
	cmd.Flags().BoolVar(&flags.Keep, "keep", false, "leave the topology attached until \"netdra chain undo\"")
	cmd.Flags().BoolVar(&flags.Check, "check", false,
		"call STATUS before attaching and CHECK while attached, for plugins that support them")
	return cmd
}
