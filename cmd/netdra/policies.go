package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/clusterwide"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func policiesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List effects of policies, test new ones",
		Long: `Use policies list to see what the DeviceExposurePolicies of the cluster do, and policies test before you
apply others.`,
		Example: `  sudo netdra policies list
  sudo netdra policies test policies.yaml`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policiesListCommand(deps, streams), policiesTestCommand(deps, streams))
	return cmd
}

func policiesListCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags, form := &offers.Inputs{}, ""
	cmd := &cobra.Command{
		Use:   "list [POLICY]...",
		Short: "List what policies do on nodes",
		Long: `Use list to find policies that select nothing, and to see how many devices each policy exposes.

For every DeviceExposurePolicy that the driver knows it counts the devices that the policy exposes, exposes although no
DeviceClass can pick them (unusable), hides, loses to another policy, or fails for because its expression is an error
there; -o wide and -o json have their names. STATE is one of
  active       it selects devices of the node
  unusable     it exposes devices, and no DeviceClass can pick one: no CNI plugin for them works on the node
  no match     it selects none: its expression is false for every device
  failed       it selects none: its expression is an error for some devices, and false for the others
  other nodes  its nodeSelector leaves out the node
  invalid      it exposes nothing until it is corrected

Exit status: 0 the policies are listed, 2 the driver does not answer, or there is no such policy.`,
		Example: `  sudo netdra policies list
  netdra policies list --all-nodes
  netdra policies list shared --node worker-1 -o json`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := printer.CheckListForm(form); err != nil {
				return err
			}
			effects, err := flags.PolicyEffects(cmd.Context(), deps, names)
			if err != nil {
				return err
			}
			err = printer.List(streams.Out, form, effects, offers.EffectColumns(),
				"the cluster has no DeviceExposurePolicy")
			if form == printer.FormTable || form == printer.FormWide {
				offers.WarnOfUnusable(printer.New(streams.Out), "", effects)
				offers.WarnOfNames(printer.New(streams.Out), effects)
			}
			return err
		},
	}
	socketFlag(cmd, &flags.Socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, allArguments: true,
		all: func(ctx context.Context, cluster *remote.Cluster, names []string) error {
			return clusterwide.ListPolicies(ctx, cluster, streams, form, names)
		}})
	return cmd
}

func policiesTestCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.CheckOptions{}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Show what policies would change",
		Long: `Use test to see the effect of policies on this node, or on a recorded machine, before you apply them.

For every DeviceExposurePolicy in the files it prints errors and remarks, and which devices the policy would expose,
hide, or leave to another policy. It matches a device if its expression is true; where that is an error, it fails, and
an exclude policy hides the device. Then it lists the devices that would be newly offered, no longer offered, or offered
differently, with the claims that hold them.

The policies are added to those that the driver of this node knows, and replace those of the same name, as kubectl
apply would; with --alone they replace all, and the current ones only matter for what would change. With --policies
the current policies are those of a file, and with --from there are none but these: then no driver is
asked.

Exit status: 0 the policies are valid, 1 one is not valid, 2 a file, the machine or the driver cannot be read.`,
		Example: `  # on a node, before kubectl apply
  sudo netdra policies test policies.yaml

  # anywhere, for a recorded machine, against what is in Git
  git show HEAD:policies.yaml | netdra policies test policies.yaml --policies - --alone --from worker-1`,
		Args: someArguments("FILE", "policies.yaml"),
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
