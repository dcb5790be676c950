package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func claimsCommand(streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "claims [[NAMESPACE/]CLAIM]...",
		Short: "List the claims that are prepared on this node, with their pods, interfaces and addresses",
		Long: `claims lists what the driver of this node has prepared, with a line for each pod that has the claim. A claim without a namespace
is looked up in "default".

The column STATE says: prepared (its pod's sandbox is not there yet), attaching, attached, lost (it was attached, and an interface
is not in the pod any more), failed (it is tried again), detaching, or forsaken (no pod of this node uses it, and kubelet has not
released it yet). Why claims are lost or have failed is below the table. Times are in UTC.

Exit status: 0 they are listed, 1 one of them has failed or is lost, 2 the driver does not answer, or has no such claim.`,
		Example: `  sudo netdra claims
  sudo netdra claims default/my-pod-net-8x2kq -o wide
  sudo netdra claims -o json | jq '.[].pods[]?.interfaces'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := printer.CheckListForm(form); err != nil {
				return err
			}
			all, err := nodeclient.ReadAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			claims, err := nodeclient.ChooseClaims(nodeclient.Claims(all), names)
			if err != nil {
				return err
			}
			return nodeclient.PrintClaims(streams, form, claims)
		},
		ValidArgsFunction: completeFrom(&socket, nodeclient.ClaimNames),
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	return cmd
}
