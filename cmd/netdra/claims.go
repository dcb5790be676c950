package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func claimsCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "claims [[NAMESPACE/]CLAIM]...",
		Short: "List prepared claims and their interfaces",
		Long: `Use claims to check whether the pods of this node have their interfaces, and with which addresses.

It lists the claims that the driver has prepared, one line per pod that uses the claim. A claim without a namespace is
looked up in "default".

STATE is one of
  prepared   the sandbox of the pod does not exist yet
  attaching  plugins are running
  attached   the pod has its interfaces
  lost       the claim was attached, but an interface is no longer in the pod
  failed     attaching failed and is retried
  detaching  plugins are running, or failed steps are retried
  reserved   the devices are reserved; the pod's own network attaches them (attachment: External)
  unused     no pod of this node uses the claim, and the kubelet has not released it yet
Errors are below the table. SINCE is the time when attaching or detaching began. Times are in UTC.

Exit status: 0 the claims are listed, 1 a claim has failed or is lost, 2 the driver does not answer, or has no such
claim.`,
		Example: `  sudo netdra claims
  sudo netdra claims default/my-pod-net-8x2kq -o wide
  sudo netdra claims -o json | jq '.[].pods[]?.interfaces'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return nodeclient.ListClaims(cmd.Context(), streams, socket, form, names)
		},
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, claims: true,
		object: func(place *remote.Place) []string { return place.Claims }})
	return cmd
}
