package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func policiesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Test policies before they are applied",
		Long: `Use policies test before kubectl apply. It reads DeviceExposurePolicies from YAML files and changes
nothing.`,
		Example: `  sudo netdra policies test policies.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policiesTestCommand(deps, streams))
	return cmd
}

func policiesTestCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.CheckOptions{}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Show what policies would change",
		Long: `Use test to see the effect of policies on this node, or on a recorded machine, before you apply them.

For every DeviceExposurePolicy in the files it prints errors and remarks, and which devices the policy would expose,
hide, or leave to another policy. Then it lists the devices that would be newly offered, no longer offered, or offered
differently, with the claims that hold them.

The policies are added to those that the driver of this node knows, and replace those of the same name, as kubectl
apply would; with --alone they replace all. With --policies the current policies are those of a file.

Exit status: 0 the policies are valid, 1 one is not valid, 2 a file, the machine or the driver cannot be read.`,
		Example: `  # on a node, before kubectl apply
  sudo netdra policies test policies.yaml

  # anywhere, for a recorded machine, against what is in Git
  git show HEAD:policies.yaml | netdra policies test policies.yaml --policies - --alone --from worker-1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := printer.CheckForm(flags.Form); err != nil {
				return err
			}
			return flags.Run(cmd.Context(), deps, streams, files)
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	_ = cmd.Flags().MarkHidden("filename") // the flag exists
	set := cmd.Flags()
	set.StringArrayVar(&flags.Old, "policies", nil,
		`YAML file of the current policies, or "-" for stdin (default: those that the driver of this node knows)`)
	set.BoolVar(&flags.Alone, "alone", false, "the policies replace all current ones")
	formFlag(cmd, &flags.Form)
	return cmd
}
