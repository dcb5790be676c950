package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func chainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "chain", Aliases: []string{"topology"},
		Short: "Validate, plan, run and undo a topology",
		Long: `Use chain to develop a NetworkTopology without Kubernetes. Its subcommands read a NetworkTopology from
a YAML file. Links of this machine take the place of the devices that Kubernetes would allocate.

Exit status:
  0  success
  1  a step failed or the run was interrupted, and everything was undone
  2  nothing was run: wrong usage, invalid topology, unusable link, or an earlier run that is not undone yet
  3  something could not be undone, or differs from the state before the run`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(validateCommand(streams), planCommand(deps, streams), runCommand(deps, streams),
		undoCommand(deps, streams))
	return cmd
}

// addChainFlags adds the flags that plan and run share, so that the same arguments can be used to show a plan and to
// run it.
func addChainFlags(cmd *cobra.Command, f *chainrun.Options) {
	flags := cmd.Flags()
	nameFlag(cmd, &f.Name)
	flags.StringArrayVarP(&f.Devices, "device", "d", nil,
		"STEP=LINK, or LINK if only one step takes a device; LINK is an interface name or a PCI address; repeat the "+
			"flag for each root step, and for further instances of the topology, in order")
	flags.StringArrayVar(&f.Shared, "shared", nil,
		"root STEP whose devices are shared and stay on the machine (macvlan, vlan...); other devices are exclusive "+
			"and must be restored at the end; bridges are always shared, and rejected if the plugin would move them")
	flags.BoolVar(&f.Force, "force", false, "also use links that carry this machine's traffic, which may disconnect it")
	flags.StringVar(&f.Netns, "netns", "",
		"network namespace of the pod: a path, or a name below /var/run/netns (default: created for the run)")
	flags.StringVar(&f.Pod, "pod", "default/netdra", "NAMESPACE/NAME of the pod, as plugins see it")
	flags.StringArrayVar(&f.Annotations, "annotation", nil,
		"KEY=VALUE, an annotation of the pod, for plugins that only attach networks that pods select; can be "+
			"repeated")
	cniPathFlag(cmd, &f.CNIPath)
	schemasFlag(cmd, &f.Schemas)
	formFlag(cmd, &f.Form)
}
