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
		Short: "Show the ResourceSlices that a machine would publish with some policies",
		Long: `slices shows what the driver would publish for the network devices of this machine, or of one that "netdra facts"
has recorded, with the DeviceExposurePolicies in files: which devices are offered, how they are shared, and what excludes
what. It changes nothing, asks nothing of Kubernetes and needs no root.

What is wrong with policies or can't be published goes to stderr; so does every device that is not offered, with the
reason. Nothing counts as in use.

The columns of the text form: POOL is the pool of the device; USE says whether several claims share it; CAPACITY is what
claims divide, with what one takes by default after a slash, or what an exclusive device has; CONSUMES is what the device
takes of the shared counters of its pool while it is in use, and in brackets its compatibility groups.

Forms of the slices:
  counters  as the driver publishes them
  kep5941   a claim says how much bandwidth a virtual function takes (DRA Shared Consumable Capacity)
  mixins    what devices have in common is said once (DRA ResourceSlice Mixins)
  flat      as mixins, and then put back where they are included: what the scheduler makes of them
No API server has kep5941 or mixins yet.`,
		Example: `  netdra slices -f policies.yaml -o text
  netdra slices -f policies.yaml | kubectl create --dry-run=server -f -
  netdra slices -f policies.yaml --from worker-1 --cni-plugin sriov --cni-plugin macvlan
  netdra slices -f policies.yaml -o json | jq '.items[].spec | select(.pool.name == "worker-1/eth0")'
  netdra slices -f policies.yaml --form mixins`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	set := cmd.Flags()
	addInputFlags(cmd, &flags.Inputs)
	set.StringVar(&flags.Form, "form", offers.SlicesCounters, "form of the slices: counters, kep5941, mixins or flat")
	set.StringVarP(&flags.Output, "output", "o", printer.FormYAML, "form of the result: yaml, json or text")
	// The names of flags that exist are no errors.
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(offers.SliceForms(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{printer.FormYAML, printer.FormJSON, printer.FormText}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
