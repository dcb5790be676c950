package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func chainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "chain", Aliases: []string{"topology"},
		Short: "Validate, plan, run and undo a topology",
		Long: `Use chain to develop a NetworkTopology without Kubernetes. Its commands read a NetworkTopology from a
YAML file. Links of this machine stand for the devices that Kubernetes would allocate.

Exit status:
  0  success
  1  a step failed or the run was interrupted, and everything was undone
  2  nothing was run: wrong usage, an invalid topology, a link that cannot be used, an earlier run that is not undone
  3  something could not be undone, or is not as it was before`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1 --hold
  sudo netdra chain undo`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(validateCommand(streams), graphCommand(streams), planCommand(deps, streams),
		runCommand(deps, streams), undoCommand(deps, streams))
	return cmd
}

// addChainFlags adds the flags that plan and run share, so that a plan is shown by the command line that runs it.
func addChainFlags(cmd *cobra.Command, f *chainrun.Options) {
	flags := cmd.Flags()
	nameFlag(cmd, &f.Name)
	flags.StringArrayVarP(&f.Devices, "device", "d", nil,
		"STEP=LINK, or LINK if only one step takes a device; LINK is an interface name or a PCI address; repeat it "+
			"for every root step, and for further instances of the topology, in order")
	flags.StringArrayVar(&f.Shared, "shared", nil,
		"root STEP whose devices stay on the machine and are shared (macvlan, vlan...); other devices are exclusive "+
			"and must be as before at the end; bridges are always shared, and refused if the plugin would move them")
	flags.BoolVar(&f.Force, "force", false, "use links that carry this machine's traffic, too: it may be cut off")
	flags.StringVar(&f.Netns, "netns", "",
		"network namespace of the pod: a path, or a name below /var/run/netns (default: created for the run)")
	flags.StringVar(&f.Pod, "pod", "default/netdra", "NAMESPACE/NAME of the pod, as plugins see it")
	flags.StringArrayVar(&f.Annotations, "annotation", nil,
		"KEY=VALUE, an annotation of the pod, for plugins that attach only networks that pods select; repeat it "+
			"for more")
	cniPathFlag(cmd, &f.CNIPath)
	schemasFlag(cmd, &f.Schemas)
	formFlag(cmd, &f.Form)
	completeDevices(cmd)
}

// completeDevices completes the links of the machine. Without addresses of the node, the driver's rule for
// infrastructure is not applied: the command itself rejects links that must not be used.
func completeDevices(cmd *cobra.Command) {
	// The error would be that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("device", func(cmd *cobra.Command, _ []string, typed string) ([]string,
		cobra.ShellCompDirective) {
		step := ""
		if before, _, named := strings.Cut(typed, "="); named {
			step = before + "="
		}
		facts, err := osdeps.ReadFacts(cmd.Context(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var offers []string
		for i := range facts.Devices {
			if name := string(facts.Devices[i].Interface); name != "" {
				offers = append(offers, step+name)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	})
}
