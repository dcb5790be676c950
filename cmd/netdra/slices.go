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

It prints the ResourceSlices that the driver would publish for the DeviceExposurePolicies in files, on this machine or
on one that was recorded with "netdra facts". Problems, and every hidden device with the reason, are written to
stderr. All devices count as free. The addresses and labels of this machine come from the driver if it answers, or
from flags; the output names the source.

Columns of the text form: POOL is the pool of the device; USE is shared or exclusive; CAPACITY is divided among
claims, with the default amount per claim after a slash; CONSUMES is the amount of the pool's shared counters that the
device consumes while it is in use, with its compatibility groups in brackets.

With --template it prints the slices of any node like this one, for autoscalers and capacity planning: NODE replaces
the name of the node, and attributes of a single machine, such as the MAC address, are omitted. Nodes with the same
hardware, configuration and labels have the same template.

Forms of the slices:
  counters  as the driver publishes them
  kep5941   claims choose the bandwidth of a virtual function (DRA Shared Consumable Capacity)
  mixins    common parts of devices are written once (DRA ResourceSlice Mixins)
  flat      mixins, expanded as the scheduler does
kep5941 and mixins are not supported by any API server yet.

Exit status: 0 the slices are shown, 2 the machine, or a file, cannot be read.`,
		Example: `  netdra slices -f policies.yaml -o text
  netdra slices -f policies.yaml | kubectl create --dry-run=server -f -
  netdra slices -f policies.yaml --from worker-1 --cni-plugin sriov --cni-plugin macvlan
  netdra slices -f policies.yaml -o json | jq '.items[].spec | select(.pool.name == "worker-1/eth0")'
  netdra slices -f policies.yaml --form mixins
  netdra slices -f policies.yaml --from worker-1 --template`,
		Args: noArguments("to show one device, run netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	set := cmd.Flags()
	addInputFlags(cmd, &flags.Inputs)
	set.StringVar(&flags.Form, "form", offers.SlicesCounters, "form of the slices: counters, kep5941, mixins or flat")
	set.BoolVar(&flags.Template, "template", false, "print the slices of any node of this kind")
	manifestFlag(cmd, &flags.Output)
	// The error would be that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(offers.SliceForms(),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
