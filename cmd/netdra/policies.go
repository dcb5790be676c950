package main

import (
	"context"
	"math"

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
		Short: "List and test device exposure policies",
		Long: `Use policies list to see the effect of the cluster's DeviceExposurePolicies, and policies test before
you apply new ones.`,
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
		Short: "List the effect of policies on nodes",
		Long: `Use list to find policies that select nothing, and to see how many devices each policy exposes.

For every DeviceExposurePolicy that the driver knows, it counts the devices that the policy exposes, exposes although
no DeviceClass can select them (unusable), hides, loses to another policy, or fails on because its expression returns
an error; -o wide and -o json list their names. STATE is one of
  active       the policy selects devices of the node
  unusable     it exposes devices, but no DeviceClass can select one: no CNI plugin for them works on the node
  no match     it selects no device: its expression is false for every device
  failed       it selects no device: its expression returns an error for some devices, and false for the others
  other nodes  its nodeSelector does not match the node
  invalid      it exposes nothing until it is corrected

Exit status: 0 the policies are listed, 2 the driver does not answer, or there is no such policy.`,
		Example: `  sudo netdra policies list
  netdra policies list --all-nodes
  netdra policies list shared --node worker-1 -o json`,
		RunE: func(cmd *cobra.Command, names []string) error {
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
		Short: "Show the effect of new policies",
		Long: `Use test to see the effect of policies on this node, or on a recorded machine, before you apply them.

For every DeviceExposurePolicy in the files it prints errors and remarks, and the devices that the policy would
expose, hide, or leave to another policy. A policy matches a device if its expression is true. If the expression
returns an error, the policy fails for the device; an exclude policy then hides it. At the end it lists the devices
that would be newly offered, no longer offered, or offered differently, with the claims that hold them.

The policies are added to the current ones of this node's driver and replace those of the same name, like kubectl
apply. With --alone they replace all current policies, which then only serve for the comparison. With --policies the
current policies are read from a file; with --from there are none besides these. In both cases the driver is not
queried.

Exit status: 0 the policies are valid, 1 a policy is not valid, 2 a file, the machine or the driver cannot be read.`,
		Example: `  # on a node, before kubectl apply
  sudo netdra policies test policies.yaml

  # anywhere, for a recorded machine, compared with the version in Git
  git show HEAD:policies.yaml | netdra policies test policies.yaml --policies - --alone --from worker-1`,
		Args: countArguments(1, math.MaxInt, "FILE", "policies.yaml"),
		RunE: func(cmd *cobra.Command, files []string) error {
			return flags.Run(cmd.Context(), deps, streams, files)
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	_ = cmd.Flags().MarkHidden("filename") // the flag exists
	set := cmd.Flags()
	set.StringArrayVar(&flags.Old, "policies", nil,
		`YAML file of the current policies, or "-" for stdin (default: the policies of this node's driver)`)
	set.BoolVar(&flags.Alone, "alone", false, "the policies replace all current ones")
	formFlag(cmd, &flags.Form)
	return cmd
}
