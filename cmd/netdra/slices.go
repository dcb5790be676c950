package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func slicesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.SlicesOptions{}
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Show the ResourceSlices of a machine",
		Long: `Use slices to see what policies would publish before you apply them. It changes nothing.

It prints the ResourceSlices that the driver would publish for the DeviceExposurePolicies in files, with this machine
or one that "netdra facts" has recorded. Problems, and every hidden device with the reason, go to stderr. No device
counts as in use. For this machine, addresses and labels of the node are the driver's if it answers, those of the Node
object with --kubeconfig, or given as flags; it prints which.

Columns of the text form: POOL is the pool of the device; USE is shared or exclusive; CAPACITY is what claims divide,
with the default of a claim after a slash; CONSUMES is what the device takes of the shared counters of its pool while
it is in use, with its compatibility groups in brackets.

With --template they are those of any node like this one, for autoscalers and for whoever plans a fleet: NODE stands for
the name of the node, and attributes that are of one machine only, such as the MAC address, are left out. Nodes with the
same hardware, configuration and labels have the same template.

Forms of the slices:
  counters  as the driver publishes them
  kep5941   a claim says how much bandwidth a virtual function takes (DRA Shared Consumable Capacity)
  mixins    common parts of devices are written once (DRA ResourceSlice Mixins)
  flat      mixins, resolved: what the scheduler makes of them
No API server has kep5941 or mixins yet.`,
		Example: `  netdra slices -f policies.yaml -o text
  netdra slices -f policies.yaml | kubectl create --dry-run=server -f -
  netdra slices -f policies.yaml --from worker-1 --cni-plugin sriov --cni-plugin macvlan
  netdra slices -f policies.yaml -o json | jq '.items[].spec | select(.pool.name == "worker-1/eth0")'
  netdra slices -f policies.yaml --form mixins
  netdra slices -f policies.yaml --from worker-1 --template`,
		Args: noArguments("to see one device, netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	set := cmd.Flags()
	addInputFlags(cmd, &flags.Inputs)
	set.StringVar(&flags.Form, "form", offers.SlicesCounters, "form of the slices: counters, kep5941, mixins or flat")
	set.BoolVar(&flags.Template, "template", false, "print what any node of this kind publishes")
	manifestFlag(cmd, &flags.Output)
	// The error would be that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(offers.SliceForms(),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
