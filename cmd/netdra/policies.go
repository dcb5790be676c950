package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func policiesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policies",
		Short:   "Try DeviceExposurePolicies before they are applied",
		Long:    `The command below works on DeviceExposurePolicies in YAML files. It changes nothing.`,
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
		Short: "Say what policies would expose and hide, and what would change",
		Long: `test says of every DeviceExposurePolicy in the files what is wrong with it or remarkable, which devices of the machine it would
expose and hide, and of which another policy decides. Then it lists which devices would be offered that are not offered now,
no more, or otherwise, and which claims have them.

The policies are taken as kubectl apply would take them: beside those that the driver of this node knows, in place of those of
the same name; with --alone in place of all. With --policies nothing is asked of the driver: then that file is what is there
now. The machine may be one that "netdra facts" has recorded.

Exit status: 0 the policies are valid, 1 one is not, 2 a file, the machine or the driver can't be read.`,
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
	_ = cmd.Flags().MarkHidden("filename") // the name of a flag that exists is no error
	set := cmd.Flags()
	set.StringArrayVar(&flags.Old, "policies", nil, `YAML file of the policies that are there now, or "-" for stdin (default: those that the driver of this node knows)`)
	set.BoolVar(&flags.Alone, "alone", false, "the policies are all that there will be")
	set.StringVar(&flags.Socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers")
	formFlag(cmd, &flags.Form)
	return cmd
}
